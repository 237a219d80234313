"""DistributedDataParallel as every training cell uses it."""

from typing import Any

from torch import nn

from fabricbench.cell import Cell


def distribute(model: nn.Module, cell: Cell, bucket_scale: float = 1.0) -> nn.Module:
    """Wrap in DDP as the cell's parameters say, its buckets' caps divided by `bucket_scale`; alone, don't.

    DDP's small first bucket, which lets the first all-reduce start early, is given up as soon as a single
    cap is passed. So both caps are: the first for that bucket, the second for all others.
    """
    if cell.gpus == 1:
        return model
    params = cell.params
    caps = [params.get("first_bucket_mb", 1) / bucket_scale, params["bucket_mb"] / bucket_scale]
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[next(model.parameters()).device.index] if cell.device == "cuda" else None,
        bucket_cap_mb_list=caps,  # fractions of a MiB are meant
        gradient_as_bucket_view=params.get("bucket_view", True),
        static_graph=params.get("static_graph", False),
        init_sync=cell.device != "replay",  # replayed weights are zero on every rank: nothing to send round
        # Off, batch statistics stay each rank's own, as in the published runs.
        forward_sync_buffers=params.get("broadcast_buffers", False),
    )


def bucket_bytes(model: nn.Module) -> list[int]:
    """Sizes of DDP's buckets in the order of their all-reduce, as sent (after scaling); none without DDP.

    As rebuilt in the order in which gradients came, or as made at first where nothing was rebuilt.
    """
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return []
    logged: dict[str, Any] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    text = str(logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or "")
    return [int(size) for size in text.split(",") if size.strip()]


def buffer_bytes(model: nn.Module) -> list[int]:
    """Bytes that DDP broadcasts before each forward pass, one broadcast per type of number; none if off.

    It joins buffers of one type up to 250 MiB, more than any of torchvision's models has.
    """
    if not isinstance(model, nn.parallel.DistributedDataParallel) or not model.forward_sync_buffers:
        return []
    sizes: dict[Any, int] = {}
    for buffer in model.module.buffers():
        sizes[buffer.dtype] = sizes.get(buffer.dtype, 0) + buffer.numel() * buffer.element_size()
    return [size for size in sizes.values() if size]

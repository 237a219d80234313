"""DistributedDataParallel as every training cell uses it."""

from torch import nn

from fabricbench.cell import Cell


def distribute(model: nn.Module, cell: Cell, bucket_scale: float = 1.0) -> nn.Module:
    """Wrap in DDP, the caps of its first and other buckets divided by `bucket_scale`; alone, don't."""
    if cell.gpus == 1:
        return model
    caps = [cell.params.get(name, 1) / bucket_scale for name in ("first_bucket_mb", "bucket_mb")]
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[next(model.parameters()).device.index] if cell.device == "cuda" else None,
        bucket_cap_mb_list=caps,  # fractions of a MiB are meant
        gradient_as_bucket_view=True,
        init_sync=cell.device != "replay",  # replayed weights are zero on every rank: nothing to send round
        forward_sync_buffers=False,  # batch statistics stay each rank's own, as in the published runs
    )

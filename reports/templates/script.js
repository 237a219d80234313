"use strict";
// Sorting and filtering of the table of all cells. The page reads whole without it.
(() => {
  const table = document.getElementById("cells-table");
  const tools = document.getElementById("cells-tools");
  if (!table || !tools || !table.tBodies[0].rows.length) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);

  const make = (name, attributes, parent) => {
    const element = Object.assign(document.createElement(name), attributes);
    parent.append(element);
    return element;
  };
  const labelled = (text, name, attributes) => {
    const label = make("label", { textContent: text + " " }, tools);
    return make(name, attributes, label);
  };

  const search = labelled("Filter", "input", { type: "search", id: "filter-text", placeholder: "cell or reason" });
  const status = labelled("Status", "select", { id: "filter-status" });
  const shown = make("output", { id: "filter-count" }, tools);
  const statuses = [...new Set(rows.map((row) => row.dataset.status))];
  for (const name of ["all", ...statuses]) make("option", { value: name, textContent: name }, status);

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = (status.value === "all" || row.dataset.status === status.value) && words.every((w) => text.includes(w));
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} of ${rows.length}`;
  };
  search.addEventListener("input", filter);
  status.addEventListener("change", filter);
  filter();

  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.key ?? cell.textContent.trim();
    return text !== "" && !isNaN(text) ? Number(text) : text;
  };
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const sorted = rows.map((row) => [key(row, column), row]);
      // What has no value stays last either way.
      sorted.sort(([a], [b]) => (a === "" || b === "" || up ? compare(a, b) : compare(b, a)));
      body.append(...sorted.map(([, row]) => row));
    });
  });
})();

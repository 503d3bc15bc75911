"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const tables = [...document.querySelectorAll("details.table")];
  const find = byId("find"), found = byId("found");
  const filter = () => {
    const wanted = find.value.trim().toLowerCase();
    let shown = 0;
    for (const table of tables) {
      table.hidden = !table.dataset.name.toLowerCase().includes(wanted);
      shown += table.hidden ? 0 : 1;
    }
    found.textContent = wanted ? `${shown} of ${tables.length} tables` : "";
  };
  if (find) { byId("tools").hidden = false; find.addEventListener("input", filter); }
  const reveal = () => {
    const target = byId(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => {
    for (const each of [...tables.slice(0, 50), ...document.querySelectorAll("details.prose")]) each.open = true;
  });
  const copy = byId("copy");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", () => navigator.clipboard.writeText(byId("methods-text").textContent.trim())
      .then(() => { copy.textContent = "Copied"; }));
  }
})();

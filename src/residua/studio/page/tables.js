// The tables to publish: picked from columns and families, or written as SQL.
import { byId, field, h, panel } from "./dom.js";
import { complain, edit, state } from "./store.js";

/** @param {any} column @returns {[string, string][]} families that go with a column */
function families(column) {
  /** @type {[string, string][]} */
  const found = column.counted ? [["identity", "each value"]] : [];
  for (const level of column.levels ?? []) found.push([`level ${level}`, `each ${level}`]);
  if (column.counted && (column.numeric || column.field?.type === "date")) {
    found.push(["prefix", "up to each value"], ["ranges", "every range"], ["buckets", "groups that start at …"]);
  }
  if (column.powers > 0) found.push(["means", "count and sum, for means"], ["sum", "sum"]);
  if (column.powers > 1) found.push(["variances", "count, sum and squares, for variances"]);
  return found;
}

/** @param {any} column @param {number} at @returns {any} what the spec says for the family that was picked */
function family(column, at) {
  const word = byId(`pick-${at}-family`)?.value ?? "identity";
  if (word === "means" || word === "variances") return ["total", "sum", ...(word === "variances" ? [{ moment: 2 }] : [])];
  if (word.startsWith("level ")) return { level: word.slice(6) };
  if (word !== "buckets") return word;
  return { buckets: byId(`pick-${at}-edges`).value.split(/[\s,;]+/).filter(Boolean).map(Number) };
}

/** @param {any[]} columns */
function picked(columns) {
  const chosen = columns.map((column, at) => ({ column, at })).filter(({ at }) => byId(`pick-${at}`)?.checked);
  const asked = chosen.map(({ column, at }) => [column.name, family(column, at)]);
  const name = byId("table-name").value.trim();
  const plain = asked.every(([, each]) => each === "identity");
  const tables = plain ? { columns: asked.map(([each]) => each) } : { families: Object.fromEntries(asked) };
  return name ? { name, ...tables } : tables;
}

/** @param {any} entry */
const add = async (entry) => {
  if (await edit({ place: ["tables", state.entries.length], value: entry })) {
    for (const id of ["table-name", "sql"]) byId(id).value = "";
    for (const box of byId("tables").querySelectorAll("input[type=checkbox]")) box.checked = false;
  }
};

/** @param {any} column @param {number} at */
function pick(column, at) {
  const kinds = families(column);
  const edges = h("input", { id: `pick-${at}-edges`, "data-draft": true, placeholder: "18, 65", "aria-label": `${column.name}: where groups start`, hidden: true });
  const changed = (/** @type {any} */ event) => {
    byId(`pick-${at}`).checked = true;
    edges.hidden = event.target.value !== "buckets";
  };
  return h("li", {}, h("input", { type: "checkbox", id: `pick-${at}` }), " ", h("label", { for: `pick-${at}` }, column.name), " ",
    kinds.length > 1 && h("select", { id: `pick-${at}-family`, "aria-label": `${column.name}: which numbers`, onchange: changed },
      kinds.map(([value, words]) => h("option", { value }, words))), edges);
}

/** @param {any} entry @param {number} at @param {number} count */
const entry = (entry, at, count) => h("li", {},
  h("span", {}, entry.name && h("b", {}, entry.name, " "), entry.words, entry.weight && entry.weight !== 1 ? ` (weight ${entry.weight})` : ""),
  h("button", {
    type: "button", id: `remove-${at}`, "aria-label": `Remove ${entry.name || entry.words}`, disabled: count === 1,
    onclick: () => edit({ place: ["tables", at], remove: true }),
  }, "Remove"));

export const tables = panel("tables", (state) => [state.entries, state.columns.filter((/** @type {any} */ each) => each.cells)], ([entries, columns]) => {
  const ways = Array.from({ length: Math.min(4, Math.max(1, columns.length)) }, (_, at) => at + 1);
  return [
    h("h2", { id: "tables-h" }, "Tables"),
    h("ul", { class: "entries" }, entries.map((/** @type {any} */ each, /** @type {number} */ at) => entry(each, at, entries.length))),
    columns.length > 0 && h("details", { id: "add" }, h("summary", {}, "Add tables"), h("div", {},
      h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); add(picked(columns)); } },
        h("fieldset", {}, h("legend", {}, "One table by"), h("ul", { class: "picks" }, columns.map(pick))),
        field("table-name", "Its name, if you like", { "data-draft": true, autocomplete: "off" }),
        h("button", { type: "submit", id: "add-table" }, "Add the table")),
      h("form", {
        onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); add({ marginals: `up to ${byId("ways").value}` }); },
      }, h("div", { class: "field" }, h("label", { for: "ways" }, "Every table on at most"),
        h("select", { id: "ways" }, ways.map((each) => h("option", { value: each }, `${each} column${each === 1 ? "" : "s"}`)))),
      h("button", { type: "submit", id: "add-all" }, "Add them all")),
      h("form", {
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          const text = byId("sql").value.trim();
          return text ? add({ sql: text }) : complain("Write a query first, such as SELECT sex, COUNT(*) FROM people GROUP BY sex");
        },
      }, h("label", { for: "sql" }, "A query in SQL"),
      h("textarea", { id: "sql", rows: 3, "data-draft": true, spellcheck: "false", placeholder: "SELECT sex, COUNT(*) FROM people GROUP BY sex" }),
      h("button", { type: "submit", id: "add-sql" }, "Add the query")))),
  ];
});

// The columns and their cells, which are public knowledge, and what a person must still supply.
import { byId, choice, field, h, panel } from "./dom.js";
import { complain, edit, state } from "./store.js";

/** @type {[string, string][]} */
const KINDS = [
  ["labels", "labels"], ["integer", "whole numbers"], ["bins", "numbers in bins"], ["boolean", "true or false"], ["date", "dates"],
];
/** Kinds that somebody has chosen for a column but not saved. @type {Map<string, string>} */
const chosen = new Map();

/** @param {any} field */
function kindOf(field) {
  if (field?.residua?.hierarchy) return "hierarchy";
  if (field?.residua?.bins || field?.type === "number") return "bins";
  if (field?.constraints?.enum || field?.type === "string") return "labels";
  return { boolean: "boolean", date: "date", integer: "integer" }[field?.type] ?? "labels";
}

/** @param {any} value */
const plain = (value) => (value === undefined || value === "CONFIRM" ? "" : String(value));

/** @param {string} text */
const numbers = (text) => text.split(/[\s,;]+/).filter(Boolean).map(Number);

/** @param {any} column @param {number} at @param {string} kind */
function inputs(column, at, kind) {
  const id = `column-${at}`, given = column.field ?? {}, limits = given.constraints ?? {};
  if (kind === "labels") {
    const labels = Array.isArray(limits.enum) ? limits.enum.join("\n") : "";
    return [h("label", { for: `${id}-labels` }, "All labels that can be, one on each line"),
      h("textarea", { id: `${id}-labels`, rows: 5, "data-draft": true, value: labels })];
  }
  if (kind === "bins") {
    const bins = Array.isArray(given.residua?.bins) ? given.residua.bins.join(", ") : "";
    return [field(`${id}-bins`, "Edges of the bins, such as 0, 18, 65", { value: bins, "data-draft": true }),
      h("p", {}, h("input", { type: "checkbox", id: `${id}-above`, checked: given.residua?.above === true }), " ",
        h("label", { for: `${id}-above` }, "open above the last edge"))];
  }
  if (kind === "boolean") return [];
  const parts = [
    field(`${id}-low`, kind === "date" ? "First day" : "Smallest", { value: plain(limits.minimum), type: kind === "date" ? "date" : "number", "data-draft": true }),
    field(`${id}-high`, kind === "date" ? "Last day" : "Largest", { value: plain(limits.maximum), type: kind === "date" ? "date" : "number", "data-draft": true }),
  ];
  if (kind === "date") {
    parts.push(choice(`${id}-by`, "By", [["day", "day"], ["month", "month"], ["quarter", "quarter"], ["year", "year"]], given.residua?.by ?? "month", () => {}));
  }
  return [h("div", { class: "row" }, parts)];
}

/** @param {any} column @param {number} at @param {string} kind */
function written(column, at, kind) {
  const value = (/** @type {string} */ part) => byId(`column-${at}-${part}`).value;
  const outside = column.field?.residua?.outside;
  const rest = outside ? { outside } : {};
  /** @type {any} */
  const made = { name: column.name };
  if (kind === "labels") Object.assign(made, { type: "string", constraints: { enum: value("labels").split("\n").map((/** @type {string} */ line) => line.trim()).filter(Boolean) } });
  if (kind === "integer") Object.assign(made, { type: "integer", constraints: { minimum: Number(value("low")), maximum: Number(value("high")) } });
  if (kind === "boolean") made.type = "boolean";
  if (kind === "date") Object.assign(made, { type: "date", constraints: { minimum: value("low"), maximum: value("high") }, residua: { by: value("by"), ...rest } });
  if (kind === "bins") {
    const above = byId(`column-${at}-above`).checked;
    Object.assign(made, { type: "number", residua: { bins: numbers(value("bins")), ...(above ? { above } : {}), ...rest } });
  } else if (outside && !made.residua) made.residua = rest;
  return made;
}

/** @param {any} column */
const summary = (column) => column.missing ? "say what its cells are"
  : column.problem ? "not complete" : `${column.cells.toLocaleString("en")} cell${column.cells === 1 ? "" : "s"}`;

/** @param {any} column @param {number} at */
function item(column, at) {
  const kind = chosen.get(column.name) ?? kindOf(column.field);
  const save = (/** @type {Event} */ event) => {
    event.preventDefault();
    const made = written(column, at, kind);
    if (made.constraints?.enum?.length === 0) return complain(`${column.name}: write at least one label`);
    chosen.delete(column.name);
    byId(`column-${at}`).open = false;
    edit({ place: ["schema", "fields", at], value: made });
  };
  const leave = () => edit({ place: ["schema", "fields", at], remove: true });
  const more = column.cells > (column.labels?.length ?? 0) ? ", …" : "";
  const shown = column.labels && h("p", { class: "labels" }, column.labels.join(", ") + more);
  const form = column.field && kind !== "hierarchy" && h("form", { onsubmit: save },
    choice(`column-${at}-kind`, "Cells are", KINDS, kind, (value) => { chosen.set(column.name, value); redraw(); }),
    inputs(column, at, kind),
    h("div", { class: "row" }, h("button", { type: "submit", id: `column-${at}-save` }, "Save"),
      h("button", { type: "button", id: `column-${at}-leave`, onclick: leave }, "Leave it out")));
  return h("details", { id: `column-${at}`, open: column.missing, class: column.missing || column.problem ? "needs" : null },
    h("summary", {}, h("b", {}, column.name), " ", h("span", {}, summary(column))),
    h("div", {}, column.problem && h("p", { class: "warning" }, column.problem), shown, form,
      kind === "hierarchy" && h("p", { class: "soft" }, `Levels: ${(column.levels ?? []).join(", ")}. A hierarchy is edited in the file.`)));
}

let turn = 0;
export const columns = panel("columns", (state) => [turn, state.columns, state.schemaFile], ([, columns, file]) => [
  h("h2", { id: "columns-h" }, "Columns"),
  h("p", { class: "soft" }, file ? `From ${file}, where they are edited.` : "Cells must be public knowledge, never a fact of the data."),
  ...columns.map(item),
]);

function redraw() {
  turn += 1;
  columns(state);
}

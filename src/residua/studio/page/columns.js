// The columns and their cells, which are public knowledge, and what a person must still supply.
import { byId, choice, field, h, panel } from "./dom.js";
import { complain, edit, state } from "./store.js";

/** @type {[string, string][]} */
const KINDS = [
  ["labels", "labels"], ["integer", "whole numbers"], ["quantity", "numbers to add up"], ["bins", "numbers in bins"],
  ["boolean", "true or false"], ["date", "dates"], ["hierarchy", "places in places"],
];
/** Kinds that somebody has chosen for a column but not saved. @type {Map<string, string>} */
const chosen = new Map();

/** @param {any} field */
function kindOf(field) {
  if (field?.residua?.hierarchy) return "hierarchy";
  if (field?.residua?.step) return "quantity";
  if (field?.residua?.bins || field?.type === "number") return "bins";
  if (field?.constraints?.enum || field?.type === "string") return "labels";
  return { boolean: "boolean", date: "date", integer: "integer" }[field?.type] ?? "labels";
}

/** @param {any} value */
const plain = (value) => (value === undefined || value === "CONFIRM" ? "" : String(value));

/** @param {string} text */
const numbers = (text) => text.split(/[\s,;]+/).filter(Boolean).map(Number);

/** @param {string} id @param {string} words @param {boolean} checked */
const box = (id, words, checked) => h("p", {}, h("input", { type: "checkbox", id, checked }), " ", h("label", { for: id }, words));

/** @param {string} id @param {any} given */
function quantity(id, given) {
  const limits = given.constraints ?? {}, own = given.residua ?? {};
  const number = (/** @type {string} */ part, /** @type {string} */ words, /** @type {any} */ value) =>
    field(`${id}-${part}`, words, { value: plain(value), type: "number", step: "any", "data-draft": true });
  return [h("div", { class: "row" }, number("low", "Lower bound", limits.minimum), number("high", "Upper bound", limits.maximum), number("step", "Rounded to", own.step)),
    field(`${id}-bins`, "Edges in between to count by, such as 20, 40; or none", { value: Array.isArray(own.bins) ? own.bins.join(", ") : "", "data-draft": true }),
    box(`${id}-squares`, "squares too, for variances", own.degree > 1),
    box(`${id}-missing`, "count missing values in a cell of their own", own.missing === true)];
}

/** @param {string} id @param {any} given */
function places(id, given) {
  const tree = given.residua?.hierarchy ?? {}, rows = Array.isArray(tree.rows) ? tree.rows : [];
  return [field(`${id}-levels`, "Levels, the widest first, such as state, county", { value: (tree.levels ?? []).join(", "), "data-draft": true }),
    field(`${id}-path`, "A CSV file beside the spec that lists the places", { value: tree.path ?? "", "data-draft": true }),
    h("label", { for: `${id}-rows` }, "Or the places, one on each line, such as North, Bergen"),
    h("textarea", { id: `${id}-rows`, rows: 5, "data-draft": true, value: rows.map((/** @type {string[]} */ row) => row.join(", ")).join("\n") })];
}

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
  if (kind === "quantity") return quantity(id, given);
  if (kind === "hierarchy") return places(id, given);
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

/** @param {string} text */
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
/** @param {string} line */
const listed = (line) => line.split(",").map((part) => part.trim());

/** @param {(part: string) => string} value @param {(part: string) => boolean} ticked @param {any} rest */
function asQuantity(value, ticked, rest) {
  const bins = numbers(value("bins"));
  return {
    type: "number", constraints: { minimum: Number(value("low")), maximum: Number(value("high")) },
    residua: {
      step: Number(value("step")), ...(bins.length ? { bins } : {}), ...(ticked("squares") ? { degree: 2 } : {}),
      ...(ticked("missing") ? { missing: true } : {}), ...rest,
    },
  };
}

/** @param {(part: string) => string} value @param {any} rest */
function asPlaces(value, rest) {
  const path = value("path").trim();
  const places = path ? { path } : { rows: lines(value("rows")).map(listed) };
  return { type: "string", residua: { hierarchy: { levels: listed(value("levels")), ...places }, ...rest } };
}

/** @param {any} column @param {number} at @param {string} kind */
function written(column, at, kind) {
  const value = (/** @type {string} */ part) => byId(`column-${at}-${part}`).value;
  const outside = column.field?.residua?.outside;
  const rest = outside ? { outside } : {};
  /** @type {any} */
  const made = { name: column.name };
  if (kind === "labels") Object.assign(made, { type: "string", constraints: { enum: lines(value("labels")) } });
  if (kind === "integer") Object.assign(made, { type: "integer", constraints: { minimum: Number(value("low")), maximum: Number(value("high")) } });
  if (kind === "boolean") made.type = "boolean";
  if (kind === "date") Object.assign(made, { type: "date", constraints: { minimum: value("low"), maximum: value("high") }, residua: { by: value("by"), ...rest } });
  const ticked = (/** @type {string} */ part) => byId(`column-${at}-${part}`).checked;
  if (kind === "quantity") return { ...made, ...asQuantity(value, ticked, rest) };
  if (kind === "hierarchy") return { ...made, ...asPlaces(value, rest) };
  if (kind === "bins") {
    const above = ticked("above");
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
  const form = column.field && h("form", { onsubmit: save },
    choice(`column-${at}-kind`, "Cells are", KINDS, kind, (value) => { chosen.set(column.name, value); redraw(); }),
    inputs(column, at, kind),
    h("div", { class: "row" }, h("button", { type: "submit", id: `column-${at}-save` }, "Save"),
      h("button", { type: "button", id: `column-${at}-leave`, onclick: leave }, "Leave it out")));
  return h("details", { id: `column-${at}`, open: column.missing, class: column.missing || column.problem ? "needs" : null },
    h("summary", {}, h("b", {}, column.name), " ", h("span", {}, summary(column))),
    h("div", {}, column.problem && h("p", { class: "warning" }, column.problem), shown,
      column.levels?.length > 0 && h("p", { class: "soft" }, `Levels: ${column.levels.join(", ")}`), form));
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

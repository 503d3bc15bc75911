// The page: its head, its beginning, and the order in which its parts are drawn.
import { byId, h, panel } from "./dom.js";
import { act, complain, follow, problem, state, watch } from "./store.js";
import { columns } from "./columns.js";
import { tables } from "./tables.js";
import { budget } from "./budget.js";
import { errors } from "./errors.js";
import { rehearsal } from "./rehearsal.js";
import { exporting, optimal, shares, variants } from "./aside.js";

const start = panel("start", (state) => [state.text === null, state.sources, state.file], ([, sources, file]) => {
  const data = sources.filter((/** @type {any} */ each) => each.kind === "data");
  const documents = sources.filter((/** @type {any} */ each) => each.kind === "document");
  const values = h("input", { type: "checkbox", id: "read-values" });
  /** @param {any} each */
  const button = (each) => h("li", {}, h("button", {
    type: "button", onclick: () => act({ do: "start", source: each.name, values: values.checked }),
  }, each.name));
  return [
    h("h2", { id: "start-h" }, "Where do the columns come from?"),
    h("p", {}, "A release begins with its columns. ", file ? `The spec will be written to ${file}.` : "",
      " Choose a file of this folder:"),
    data.length > 0 && h("div", {},
      h("h3", {}, "The header of a data file"),
      h("ul", { class: "files" }, data.map(button)),
      h("p", {}, values, " ", h("label", { for: "read-values" }, "Look at the values too, for ranges and labels")),
      h("p", { class: "soft" }, "Without this, only names and types of columns are read. With it, the draft holds facts of the data, "
        + "and a person must confirm that each is public knowledge.")),
    documents.length > 0 && h("div", {}, h("h3", {}, "A Table Schema, or a spec"), h("ul", { class: "files" }, documents.map(button))),
    !data.length && !documents.length && h("p", {}, "There is no CSV, Parquet, JSON or YAML file in this folder. Put one there, and load this page again."),
  ];
});

const toolbar = panel("toolbar", (state) => [state.undo, state.redo, state.text === null], ([undo, redo, none]) => none ? [] : [
  h("button", { type: "button", id: "undo", disabled: !undo, onclick: () => act({ do: "undo" }) }, "Undo"),
  h("button", { type: "button", id: "redo", disabled: !redo, onclick: () => act({ do: "redo" }) }, "Redo"),
]);

/** @param {any} state */
function status(state) {
  const line = byId("status"), job = state.planning;
  const missing = state.columns.filter((/** @type {any} */ each) => each.missing).length;
  const waiting = missing ? `${missing} column${missing === 1 ? " needs its" : "s need their"} cells` : state.problem;
  const words = problem() || waiting || state.failure;
  const parts = [];
  if (words) parts.push(h("span", { class: "warning" }, words), " ");
  if (problem()) parts.push(h("button", { type: "button", onclick: () => complain(null) }, "Dismiss"));
  if (job) {
    const done = job.fraction > 0 ? ` ${Math.round(100 * job.fraction)}%` : "";
    parts.push(h("span", { class: "busy" }, `Working: ${job.words}${done} `),
      h("button", { type: "button", id: "cancel", onclick: () => act({ do: "cancel" }) }, "Cancel"));
  } else if (state.failure === "Planning was cancelled.") {
    parts.push(h("button", { type: "button", id: "replan", onclick: () => act({ do: "replan" }) }, "Plan again"));
  }
  const text = parts.map((each) => (typeof each === "string" ? each : each.textContent)).join("");
  if (line.dataset.text === text) return;
  const focused = document.activeElement?.id;
  line.dataset.text = text;
  line.replaceChildren(...parts);
  if (focused && line.querySelector(`#${CSS.escape(focused)}`)) byId(focused).focus();
}

const panels = [start, toolbar, columns, tables, budget, errors, rehearsal, shares, optimal, variants, exporting];
watch((state) => {
  byId("start").hidden = state.text !== null;
  byId("desk").hidden = state.text === null;
  byId("file").textContent = state.file || "";
  document.title = state.file ? `${state.file} – Residua studio` : "Residua studio";
  for (const draw of panels) draw(state);
  status(state);
});
addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement && event.target.type !== "range" || event.target instanceof HTMLTextAreaElement;
  if (typing || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || !state) return;
  event.preventDefault();
  act({ do: event.shiftKey ? "redo" : "undo" });
});
follow();

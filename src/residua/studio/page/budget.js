// How much privacy: a slider whose every stop the server has put in words, and whose errors the page scales.
import { choice, field, h, panel } from "./dom.js";
import { edit, state } from "./store.js";

/** The stop that the slider is at while it moves; null when it rests at the file's. @type {number | null} */
let moving = null;
/** @type {((size: number | null) => void)[]} */
const listeners = [];
/** @param {(size: number | null) => void} listener told how large errors are at the stop the slider moves to */
export const onBudget = (listener) => { listeners.push(listener); };

/** @type {Record<string, string>} */
const AMOUNT = { zcdp: "rho", gdp: "mu", approx_dp: "epsilon", pure_dp: "epsilon", privacy_cost: "cost" };
/** @type {[string, string][]} */
const DEFINITIONS = [["zcdp", "zero-concentrated DP (rho)"], ["approx_dp", "approximate DP (epsilon, delta)"],
  ["gdp", "Gaussian DP (mu)"], ["pure_dp", "pure DP (epsilon)"], ["privacy_cost", "privacy cost"]];
const MOST_HANDLES = 60;

/** @param {number} value @returns {number} rounded to three digits */
const short = (value) => Number(value.toPrecision(3));

/** @param {any} stop @param {string} definition @returns {Record<string, number>} about the same privacy */
function amounts(stop, definition) {
  const rho = Number(stop.rho), epsilon = short(Number(stop.epsilon));
  return /** @type {any} */ ({
    zcdp: { rho: short(rho) }, gdp: { mu: short(Math.sqrt(2 * rho)) }, approx_dp: { epsilon, delta: 1e-6 },
    pure_dp: { epsilon }, privacy_cost: { cost: short(2 * rho) },
  })[definition];
}

/** @param {Record<string, any>} privacy what the file has @param {Record<string, any>} wanted */
const privacyEdits = (privacy, wanted) => [
  ...Object.keys(privacy).filter((name) => name !== "unit" && !(name in wanted)).map((name) => ({ place: ["privacy", name], remove: true })),
  ...Object.entries(wanted).map(([name, value]) => ({ place: ["privacy", name], value })),
];

/** @param {any} stop */
const words = (stop) => [
  h("div", {}, h("dt", {}, "Chance of detecting a person"), h("dd", { id: "said-detection" }, `at most ${stop.detection}`),
    h("dd", { class: "soft" }, "by any test with 5% false alarms")),
  h("div", {}, h("dt", {}, "rho"), h("dd", { id: "said-rho" }, stop.rho), h("dd", { class: "soft" }, "zero-concentrated DP")),
  h("div", {}, h("dt", {}, "epsilon"), h("dd", { id: "said-epsilon" }, stop.epsilon), h("dd", { class: "soft" }, "at delta = 1e-6")),
];

/** Give every table the error it has now as its target, and let them say how much privacy that takes. */
function byAccuracy() {
  const figures = state.figures, half = (/** @type {any} */ row) => Number((figures.margin * row.largest).toPrecision(2));
  const rows = figures.tables.filter((/** @type {any} */ row) => row.largest !== null);
  const named = rows.length <= MOST_HANDLES && rows.length === figures.table_count;
  const targets = named ? Object.fromEntries(rows.map((/** @type {any} */ row) => [row.name, { half_width: half(row) }]))
    : { half_width: Math.max(...rows.map(half)) };
  edit(...privacyEdits(state.privacy, {}), { place: ["targets"], value: targets });
}

/** Spend what the targets need, and leave it at that. */
function byBudget() {
  const found = state.figures ? amounts(state.figures.privacy, "zcdp") : { rho: 0.1 };
  edit({ place: ["targets"], remove: true }, ...privacyEdits(state.privacy, { definition: "zcdp", ...found }));
}

/** @param {any[]} ladder @param {number} value */
const place = (ladder, value) => ladder.reduce((best, stop, at) =>
  Math.abs(Math.log(stop.value / value)) < Math.abs(Math.log(ladder[best].value / value)) ? at : best, 0);

/** @param {any[]} ladder @param {any} privacy */
function slider(ladder, privacy) {
  const name = AMOUNT[privacy.definition], at = place(ladder, Number(privacy[name]));
  const said = h("dl", { class: "said", id: "said" }, words(ladder[at]));
  const tell = (/** @type {any} */ input) => {
    const stop = ladder[Number(input.value)];
    input.setAttribute("aria-valuetext", `${stop.words}; chance of detection at most ${stop.detection}`);
    said.replaceChildren(...words(stop));
  };
  const input = h("input", {
    type: "range", id: "amount", min: 0, max: ladder.length - 1, step: 1, value: at, "aria-describedby": "said",
    oninput: (/** @type {any} */ event) => {
      moving = Number(event.target.value);
      tell(event.target);
      for (const listener of listeners) listener(ladder[moving].size);
    },
    onchange: async (/** @type {any} */ event) => {
      const wanted = ladder[Number(event.target.value)].value;
      await edit({ place: ["privacy", name], value: wanted });
      moving = null;
    },
  });
  input.value = String(at);
  tell(input);
  return [h("label", { for: "amount" }, "More privacy ← → more accuracy"), input, said];
}

export const budget = panel("budget", (state) => [state.ladder, state.privacy, state.targets !== null && state.targets !== undefined, state.unit, state.figures !== null],
  ([ladder, privacy, targets, unit, planned], whole) => {
    if (!ladder.length) return [h("h2", { id: "budget-h" }, "Privacy"), h("p", { class: "soft" }, "As soon as the columns are complete.")];
    const own = privacy.definition;
    const toDefinition = (/** @type {string} */ wanted) => edit(...privacyEdits(privacy, {
      definition: wanted, ...amounts(ladder[place(ladder, Number(privacy[AMOUNT[own]]))], wanted) }));
    const most = privacy.unit?.max_records ?? 1;
    const fixed = h("fieldset", { class: "row" }, h("legend", {}, "What is fixed"),
      h("span", {}, h("input", { type: "radio", name: "fixed", id: "fix-budget", checked: !targets, onchange: byBudget }), " ", h("label", { for: "fix-budget" }, "the budget")),
      h("span", {}, h("input", { type: "radio", name: "fixed", id: "fix-accuracy", checked: targets, disabled: !planned, onchange: byAccuracy }), " ", h("label", { for: "fix-accuracy" }, "the accuracy of each table")));
    const asked = targets && whole.figures && !whole.stale ? [h("p", {}, "The targets need:"), h("dl", { class: "said", id: "said" }, words(whole.figures.privacy))] : [];
    return [
      h("h2", { id: "budget-h" }, "Privacy"),
      ...(own && !targets ? slider(ladder, privacy) : asked),
      h("div", { class: "row" },
        fixed,
        own && !targets && choice("definition", "Written as", DEFINITIONS, own, toDefinition),
        field("most", "Most records of one person", {
          type: "number", min: 1, value: most,
          onchange: (/** @type {any} */ event) => edit({ place: ["privacy", "unit", "max_records"], value: Math.max(1, Math.round(Number(event.target.value))) }),
        })),
      h("p", { class: "soft" }, `It limits the effect of ${unit}, on all tables together.`),
    ];
  });

/** @returns {boolean} whether the slider is held */
export const held = () => moving !== null;

// Beside the errors: where the budget goes, how far from optimal, the variant that was kept, and what to carry away.
import { figure, h, panel, percent } from "./dom.js";
import { act, complain } from "./store.js";

export const shares = panel("shares", (state) => state.figures?.shares, (shares) => [
  h("h2", { id: "shares-h" }, "Where the budget goes"),
  ...(shares ? [h("ul", { class: "shares" }, shares.map((/** @type {any} */ each) => {
    const bar = h("i", {});
    bar.style.setProperty("--x", `${100 * each.share / Math.max(...shares.map((/** @type {any} */ other) => other.share))}%`);
    return h("li", {}, h("span", {}, each.words), bar, h("b", {}, percent(each.share)));
  })), h("p", { class: "soft" }, "What many tables need gets more. Shares are of the privacy cost, which adds up.")] : []),
]);

export const optimal = panel("optimal", (state) => state.figures && [state.figures.gap, state.figures.scope, state.figures.objective, state.figures.weighted, state.ghosts, state.figures.size], (found, state) => {
  const heading = h("h2", { id: "optimal-h" }, "How far from optimal");
  if (!found) return [heading];
  const [gap, scope, objective, weighted, ghosts, size] = found;
  const others = Object.entries(ghosts).filter(([, ghost]) => ghost.weighted);
  return [heading,
    gap ? h("p", {}, h("b", { class: "large" }, gap), ` above a proved lower bound on the ${objective}, for ${scope}.`) : h("p", {}, "No lower bound is known for this plan."),
    others.length > 0 && h("ul", {}, others.map(([name, ghost]) => {
      const ratio = (ghost.weighted * size / ghost.size) / weighted;
      return h("li", {}, `${name} would have ${figure(ratio)} times the typical error, or need ${figure(ratio * ratio)} times the budget for this one.`);
    }))];
});

export const variants = panel("variants", (state) => [state.kept && [state.kept.privacy, state.kept.rmse, state.kept.margin, state.kept.table_count], state.figures && [state.figures.privacy, state.figures.rmse, state.figures.table_count], state.stale], ([kept, now, stale], state) => {
  const button = (/** @type {string} */ what, /** @type {string} */ words, off = false) =>
    h("button", { type: "button", id: what, disabled: off, onclick: () => act({ do: what }) }, words);
  const row = (/** @type {string} */ name, /** @type {any} */ figures) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, figures.privacy.rho),
    h("td", {}, figures.privacy.detection), h("td", {}, figures.table_count), h("td", {}, figures.rmse ? `± ${figure(figures.margin * figures.rmse)}` : "–"));
  return [
    h("h2", { id: "variants-h" }, "Two variants"),
    kept && now ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Both variants side by side" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "rho", "detection", "tables", "typical number"].map((words) => (words ? h("th", { scope: "col" }, words) : h("td", {}))))),
      h("tbody", {}, row("now", state.figures), row("kept", state.kept)))) : h("p", { class: "soft" }, "Keep this plan, change what you like, and see both on the same bars."),
    h("div", { class: "row" }, button("keep", kept ? "Keep this instead" : "Keep this plan", !now || stale), kept && button("swap", "Swap"), kept && button("drop", "Forget it")),
  ];
});

/** @param {string} what */
async function carry(what) {
  const answer = await fetch(`export/${what}`);
  if (!answer.ok) {
    const found = await answer.json().catch(() => ({ problem: "The studio refused this." }));
    return complain(found.problem);
  }
  const name = /filename="([^"]*)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? what;
  const address = URL.createObjectURL(await answer.blob());
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export const exporting = panel("export", (state) => [state.commands, state.text, state.problem !== null], ([commands, text, broken]) => {
  const button = (/** @type {string} */ what, /** @type {string} */ words) =>
    h("button", { type: "button", id: `export-${what}`, disabled: broken && what !== "spec", onclick: () => carry(what) }, words);
  return [
    h("h2", { id: "export-h" }, "Carry it away"),
    h("div", { class: "row" }, button("spec", "Spec"), button("python", "Python"), button("notebook", "Notebook"), button("report", "Report on the plan")),
    ...(commands.length ? [h("p", {}, "Releasing spends privacy, so it is not done from a page. When everybody agrees:"), h("pre", { tabindex: 0 }, commands.join("\n"))] : []),
    text && h("details", { id: "written" }, h("summary", {}, "The file"), h("pre", { tabindex: 0, "aria-label": "The text of the spec" }, text)),
  ];
});

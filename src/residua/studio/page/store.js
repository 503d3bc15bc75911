// What the server says, and asking it for things. The state on the page is always the server's.

/** @type {any} */
export let state = null;
/** @type {((state: any) => void)[]} */
const watchers = [];
/** @type {string | null} */
let trouble = null;

/** @param {(state: any) => void} watcher */
export const watch = (watcher) => { watchers.push(watcher); };

/** @returns {string | null} what went wrong last */
export const problem = () => trouble;

/** @param {any} news */
function take(news) {
  if (state && news.version < state.version) return;
  state = news;
  for (const watcher of watchers) watcher(state);
}

/** @param {string | null} words */
export function complain(words) {
  trouble = words;
  if (state) for (const watcher of watchers) watcher(state);
}

/** Ask for news for ever. */
export async function follow() {
  for (;;) {
    let news = null;
    try {
      const answer = await fetch(`state?seen=${state ? state.version : ""}`);
      if (answer.ok) news = await answer.json();
    } catch { /* nobody is there */ }
    if (news === null) {
      complain(GONE);
      await new Promise((done) => setTimeout(done, 1000));
      continue;
    }
    if (trouble === GONE) trouble = null;
    take(news);
  }
}
const GONE = "The studio has ended, or cannot be reached. Start it again in the terminal.";

/**
 * Ask for something to be done; the answer, or null where it was refused.
 * @param {Record<string, any>} body
 * @returns {Promise<any>}
 */
async function ask(body) {
  let answer;
  try {
    answer = await fetch("act", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
  } catch {
    complain(GONE);
    return null;
  }
  const found = await answer.json().catch(() => ({ problem: "The studio refused this." }));
  if (!answer.ok) {
    complain(found.problem);
    return null;
  }
  return found;
}

/** What is being done; the next thing waits for it. @type {Promise<any>} */
let doing = Promise.resolve();
let waiting = 0;

/** @param {Record<string, any>} body a question about what the file says when all changes are made */
export const question = (body) => doing.then(() => ask(body));

/** @param {() => Record<string, any>} body something that changes the state, made when it is its turn */
function inTurn(body) {
  waiting += 1;
  doing = doing.then(async () => {
    const found = await ask(body());
    waiting -= 1;
    if (!found) return false;
    trouble = null;
    take(found);
    return true;
  });
  return doing;
}

/** @param {Record<string, any>} body @returns {Promise<boolean>} whether it was done */
export const act = (body) => inTurn(() => body);

/**
 * Change the file in one step.
 * @param {...{place: (string | number)[], value?: any, remove?: boolean}} edits
 * @returns {Promise<boolean>}
 */
export function edit(...edits) {
  const counted = edits.some((each) => each.place.some((step) => typeof step === "number"));
  if (waiting && counted) return Promise.resolve(false); // lists may change: their places would be others
  return inTurn(() => ({ do: "edit", revision: state.revision, edits }));
}

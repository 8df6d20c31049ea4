// What is said of a run's state, and what the page's address holds of it. Pure functions.
// @ts-check

import { precise } from "../../../views/numbers.js";

/** @import { News } from "../../../views/payloads.d.ts" */
/**
 * @typedef {{rollout: number, k: number}} Place a rollout and a step of it, from 1
 * @typedef {{run: string | null, step: number | null, group: number, watched: boolean, place: Place | null,
 *   range: [number, number] | null}} Shown
 */

export const ADVICE = /** @type {Record<string, string>} */ ({
  crashed: "The process ended without saying why; the last lines of its log are below.",
  failed: "The last lines of its log are below.",
});
const PLACE = ["rollout", "k"]; // are Inspect's too: what it had there is put back when this tab is left

/** The state that the badge names. @param {News} news */
export function stateOf(news) {
  if (news.stopping) return "stopping";
  return isStarting(news) ? "starting" : news.state;
}

/** A run whose process is there but has not spoken yet is importing what it trains with. @param {News} news */
const isStarting = (news) => news.state === "starting" || (news.state === "queued" && Boolean(news.started));

/** What ends a run, or its waiting, is called. @param {{ state: string, started: number | null }} run */
export const stopLabel = ({ state, started }) => state === "queued" && !started ? "Leave the queue" : "Stop";

/** What stands beside the badge. @param {News} news @param {number} now in seconds */
export function progressText(news, now) {
  if (isStarting(news)) return `${news.reason || "loading the trainer"}, ${duration(now - (news.started ?? now))}`;
  if (news.state === "queued" && news.reason) return [news.reason, ...queueText(news)].join(" · ");
  const parts = [`step ${news.step} of ${news.total_steps}`];
  const seconds = news.seconds ?? (news.started && !news.final ? now - news.started : null);
  if (seconds !== null) parts.push(duration(seconds));
  if (!news.final && news.pace) {
    const left = news.pace * (news.total_steps - news.step);
    parts.push(`${precise(news.pace)} s a step`, `about ${duration(left)} left`);
  }
  if (news.device) parts.push(news.device);
  if (news.resumed_from) parts.push(`resumed from step ${news.resumed_from}`);
  return parts.join(" · ");
}

/** @param {Pick<News, "ahead" | "wait">} news Its place in the queue, and when its turn comes. */
function queueText({ ahead, wait }) {
  const place = ahead ? [`place ${ahead} in the queue`] : [];
  return wait === null || wait === undefined ? place : [...place, `starts in about ${duration(wait)}`];
}

/**
 * What is said of a run whose method samples nothing; "" for any other.
 * @param {Pick<News, "method" | "has_rollouts">} news @param {boolean} hasRows whether it has stored watched rows
 */
export function withoutRollouts({ method, has_rollouts }, hasRows) {
  if (has_rollouts) return "";
  const none = `${method?.toUpperCase()} doesn’t sample.`;
  return `${none} ${
    hasRows ? "Below: the same held-out rows as the model changes." : "Its curves are all there is to see."
  }`;
}

/** Names that were stored as JSON; null for none, or anything else. @param {string | null} stored */
export function readNames(stored) {
  try {
    const names = JSON.parse(stored ?? "null");
    return Array.isArray(names) ? /** @type {string[]} */ (names) : null;
  } catch {
    return null;
  }
}

/**
 * The newest run that was not there before; null for none.
 * @param {string[]} before names @param {{name: string}[]} runs the newest first
 */
export function startedSince(before, runs) {
  return runs.find((run) => !before.includes(run.name))?.name ?? null;
}

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** The index of the step nearest to another one. @param {number[]} steps @param {number} step */
export function nearest(steps, step) {
  let best = 0;
  steps.forEach((candidate, i) => {
    if (Math.abs(candidate - step) < Math.abs(steps[best] - step)) best = i;
  });
  return best;
}

/** What an address says that curves are zoomed to. @param {URLSearchParams} parameters @returns {[number, number] | null} */
export function readRange(parameters) {
  const [xmin, xmax] = [numberIn(parameters, "xmin"), numberIn(parameters, "xmax")];
  return xmin !== null && xmax !== null && xmax > xmin ? [xmin, xmax] : null;
}

/** @param {URLSearchParams} parameters @param {string} name */
function numberIn(parameters, name) {
  const text = parameters.get(name);
  return text && Number.isFinite(Number(text)) ? Number(text) : null;
}

/** What an address asks to be shown. @param {URLSearchParams} parameters @returns {Shown} */
export function readAddress(parameters) {
  const [step, group, rollout, k] = ["step", "group", ...PLACE].map((name) => numberIn(parameters, name));
  return {
    run: parameters.get("run"),
    step,
    group: group !== null && group > 0 ? group - 1 : 0,
    watched: parameters.get("watched") === "1",
    place: rollout !== null && k !== null && rollout > 0 && k > 0 ? { rollout, k } : null,
    range: readRange(parameters),
  };
}

/** A function that writes what is shown, or null once this tab is left, into an address's parameters. */
export function addressWriter() {
  let others = /** @type {(string | null)[]} */ ([null, null]);
  return (/** @type {URLSearchParams} */ parameters, /** @type {Shown | null} */ shown) => {
    if (!shown && !parameters.has("run")) return;
    if (shown && !parameters.has("run")) others = PLACE.map((name) => parameters.get(name));
    const [xmin, xmax] = (shown?.range ?? [null, null]).map((end) => (end === null ? null : Number(end.toFixed(1))));
    const values = shown && {
      run: shown.run,
      step: shown.step,
      group: shown.group ? shown.group + 1 : null,
      watched: shown.watched ? 1 : null,
      rollout: shown.place?.rollout ?? null,
      k: shown.place?.k ?? null,
      xmin,
      xmax,
    };
    for (const name of ["run", "step", "group", "watched", ...PLACE, "xmin", "xmax"]) {
      const value = values ? values[/** @type {keyof typeof values} */ (name)] : (others[PLACE.indexOf(name)] ?? null);
      if (value === null) parameters.delete(name);
      else parameters.set(name, String(value));
    }
  };
}

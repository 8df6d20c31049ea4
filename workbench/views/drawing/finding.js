// Which rollouts of a group are shown, and in which order: verdicts, filters, search and orders. No drawing here.

/** @import { Credited, Prepared } from "./payload.js" */
/**
 * @typedef {Object} Filter
 * @property {string} key
 * @property {string} label
 * @property {string} title
 * @property {(rollout: Credited) => boolean} test
 * @property {string} [verb] between "No rollout" and the label; "is" by default
 *
 * @typedef {{ filter: string, text: string }} Wish what is looked for: a filter's key ("" for all) and a text
 */

import { count, meanOf } from "../numbers.js";
import { equalTo } from "./copies.js";
import { isWatched } from "./rows.js";
import { sampledLength, turnCount } from "./turns.js";

const MOST_TURNS = 6; // numbers of turns, and tools below, that have a filter
const MOST_TOOLS = 6;

/** @type {Filter[]} */
const FILTERS = [
  { key: "right", label: "✓ right", title: "Answers that the outcome reward scores 1", test: (r) => r.right === true },
  {
    key: "wrong",
    label: "⊘ wrong",
    title: "Answers that the outcome reward scores 0 or less",
    test: (r) => r.right === false,
  },
  {
    key: "truncated",
    label: "truncated",
    title: "Cut off by the length limit",
    test: ({ finished, stop, name }) => !finished && !stop && !isWatched({ name }),
  },
  { key: "differs", label: "sign differs", title: "Scheme B turns the sign of some of its tokens", test: changesSign },
];

/** @type {[string, string][]} */
export const ORDERS = [
  ["surprise", "surprising first"],
  ["sampled", "by number"],
  ["best", "by reward"],
  ["length", "by length"],
  ["advantage", "by advantage"],
];

/**
 * Says of each rollout whether it is right, by the outcome reward that says so.
 * @param {Prepared} data @returns {string | null} that reward's name
 */
export function judge({ rollouts, judges }) {
  const judging = judges?.outcome ?? null;
  for (const rollout of rollouts) {
    const score = judging === null ? null : rollout.outcomes?.[judging] ?? null;
    rollout.right = score === null ? null : score > 0;
  }
  return judging;
}

/** @param {Credited} rollout */
function changesSign({ advantages, twin }) {
  const other = twin?.advantages;
  return Boolean(advantages && other && advantages.some((value, t) => value * other[t] < 0));
}

/** @param {number} turns @returns {Filter} */
const ofTurns = (turns) => ({
  key: `turns:${turns}`,
  label: count(turns, "turn"),
  title: `Episodes of ${count(turns, "turn")} of the policy's`,
  verb: "has",
  test: (rollout) => rollout.turns !== undefined && turnCount(rollout) === turns,
});

/** @param {string} tool "" for a call that names none @returns {Filter} */
const ofTool = (tool) => ({
  key: `calls:${tool}`,
  label: tool ? `calls ${tool}` : "calls",
  title: tool ? `Episodes that call the tool ${tool}` : "Episodes with a call",
  verb: "that",
  test: ({ turns }) => Boolean(turns?.some(({ calls }) => calls?.includes(tool))),
});

/** @type {Filter} */
const ERROR = {
  key: "error",
  label: "error",
  title: "Episodes with a turn that the environment gave no answer to",
  verb: "has an",
  test: ({ turns }) => Boolean(turns?.some(({ error }) => error !== null)),
};

/** @type {Filter} */
const NO_CALL = {
  key: "no-call",
  label: "no call",
  title: "Episodes without a call of a tool",
  verb: "with",
  test: ({ turns }) => Boolean(turns && !turns.some(({ calls }) => calls?.length)),
};

/** @param {string} key @returns {Filter | undefined} */
function filterOf(key) {
  if (key.startsWith("turns:")) return ofTurns(Number(key.slice("turns:".length)));
  if (key.startsWith("calls:")) return ofTool(key.slice("calls:".length));
  return [...FILTERS, ERROR, NO_CALL].find((filter) => filter.key === key);
}

/** @param {Prepared} data @returns {Filter[]} What tells its episodes apart: their numbers of turns, the tools they call. */
function episodeFilters({ rollouts }) {
  if (!rollouts.some((rollout) => rollout.turns)) return [];
  const turns = [...new Set(rollouts.filter((rollout) => rollout.turns).map(turnCount))].sort((a, b) => a - b);
  const tools = new Set(rollouts.flatMap((rollout) => rollout.turns ?? []).flatMap(({ calls }) => calls ?? []));
  const calling = [...[...tools].sort().slice(0, MOST_TOOLS).map(ofTool), ...(tools.size ? [NO_CALL] : [])];
  return [ERROR, ...(turns.length > 1 ? turns.slice(0, MOST_TURNS).map(ofTurns) : []), ...calling];
}

/** @param {Prepared} data @returns {(Filter & { count: number })[]} Each filter with how many rollouts it leaves. */
export const filtersOf = (data) =>
  [...FILTERS, ...episodeFilters(data)].map((filter) => ({
    ...filter,
    count: data.rollouts.filter(filter.test).length,
  }));

/** @param {Credited} rollout @param {Wish} wish Whether it is to be shown. */
export function fits(rollout, { filter, text }) {
  const chosen = filterOf(filter);
  if (chosen && !chosen.test(rollout)) return false;
  return !text || rollout.texts.join("").toLowerCase().includes(text.toLowerCase());
}

/** @param {Wish} wish What no rollout fits, in words. */
export function missed({ filter, text }) {
  const chosen = filterOf(filter);
  const kind = chosen ? ` ${chosen.verb ?? "is"} “${chosen.label.replace(/^\W+/u, "")}”` : "";
  return `No rollout${kind}${kind && text ? " and" : ""}${text ? ` contains “${text}”` : ""}. `;
}

/** @param {Prepared} data @param {number[]} places @param {string} order Rollouts in an order; equal ones as sampled. */
export function ordered({ rollouts, order: surprising }, places, order) {
  const keyOf = (/** @type {number} */ g) => {
    const { rank, advantages, observed } = rollouts[g];
    const sampled = observed ? advantages?.filter((_, t) => !observed[t]) : advantages;
    if (order === "surprise") return surprising?.indexOf(g) ?? g;
    if (order === "best") return rank ?? Infinity;
    if (order === "length") return -sampledLength(rollouts[g]);
    return order === "advantage" && sampled?.length ? -meanOf(sampled) : order === "advantage" ? Infinity : g;
  };
  const keys = new Map(places.map((g) => [g, keyOf(g)]));
  const by = (/** @type {number} */ g) => keys.get(g) ?? 0;
  return [...places].sort((a, b) => (by(a) === by(b) ? a - b : by(a) - by(b)));
}

/**
 * The cards in their order and those that are looked for, and all rollouts that are, copies among them.
 * @param {Prepared} data @param {number[]} places the rollouts that have a card @param {string} order @param {Wish} wish
 */
export function arranged(data, places, order, wish) {
  const cards = new Set(places);
  const folded = new Set(places.filter((g) => equalTo(data, g).some((copy) => !cards.has(copy))));
  const membersOf = (/** @type {number} */ g) => (folded.has(g) ? equalTo(data, g) : [g]);
  const sorted = ordered(data, places, order);
  const shown = sorted.filter((g) => membersOf(g).some((member) => fits(data.rollouts[member], wish)));
  const fitting = data.rollouts.flatMap((rollout, g) => (fits(rollout, wish) ? [g] : []));
  return { places: sorted, shown, fitting };
}

// The Help tab. Its value never changes but for the numbers of the pinned token, asked for each time it is shown.

/** @import { GuidePayload, LivePayload, MetricPayload, SchemeGuide, TermPayload, WhyPayload } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */
/** @typedef {{ tab: string, rollout: number | null, token: number | null }} LiveAsked */

import { copy, el, tableOf } from "../../views/dom.js";
import { MINUS, number } from "../../views/numbers.js";
import { noSpreadText } from "../../views/drawing/notices.js";
import { termName } from "../../views/drawing/why.js";
import { address } from "./address.js";
import { answerOf, follow } from "./widget.js";

const NOTHING = "Nothing is scored on Inspect right now; score a group there and come back.";
const FOLLOWED =
  "notebooks/00_from_regex_to_loss.ipynb follows one group with every number, from the step pattern to TRL's loss and " +
  "one optimiser step; docs/articles.md starts from an article's script.";
const NO_ANSWER = "The workbench did not answer; the numbers come back when it does.";
const STANDARDISED =
  "z(x) = (x − mean) / (std + 0.0001) over the group's scored values, std with ddof = 1; an unscored step is in " +
  "neither and adds nothing.";
const TERMS = ["", "r = Σ weight · score", "r̃ = (r − mean) / (std + 0.0001)", "factor", "adds"];
const SAME = 1e-9;

/** @param {Handles<{ live: Call<LiveAsked, LivePayload | null> }>} handles */
export function help(handles) {
  const numbers = el("div", { id: "help-live", "aria-live": "polite" });
  let asked = 0;
  /** @type {SchemeGuide[]} */
  let schemes = [];
  const ask = async () => {
    const mine = ++asked;
    const { tab, pinned } = address;
    let parts;
    try {
      const call = handles.server.live({ tab, rollout: pinned?.g ?? null, token: pinned?.t ?? null });
      parts = liveParts(await answerOf(call), schemes);
    } catch {
      parts = [el("p", { class: "muted" }, NO_ANSWER)];
    }
    if (mine === asked) numbers.replaceChildren(...parts);
  };
  follow(handles, (root, /** @type {GuidePayload | null} */ value) => {
    if (!value || root.hasChildNodes()) return;
    schemes = value.schemes;
    const sections = sectionsOf(value, numbers);
    root.append(contentsOf(sections), ...sections);
  });
  if (new URL(location.href).searchParams.get("tab") === "help") document.getElementById("help-tab-button")?.click();
  new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) ask();
  }).observe(numbers);
}

// ── the numbers on screen ────────────────────────────────────────────────────────────────────────────────────

/** @param {LivePayload | null} live @param {SchemeGuide[]} schemes */
function liveParts(live, schemes) {
  const scheme = schemes.find(({ name }) => name === live?.scheme);
  if (!live || !scheme) return [el("p", { class: "muted" }, NOTHING)];
  const options = Object.entries(live.options).map(([name, value]) => `${name} ${value}`).join(" · ");
  const { name, formula, source, summary } = scheme;
  return [
    el("p", { class: "formula" }, el("b", {}, name), ` ${formula}`, el("span", { class: "muted" }, `  ${source}`)),
    el("p", { class: "muted" }, summary),
    el("p", { class: "muted" }, options),
    el("p", {}, "For ", whereText(live), el("code", {}, JSON.stringify(live.text)), ":"),
    table("Terms of the advantage", TERMS, live.why.list.map(termCells)),
    el("p", { id: "help-sum" }, sumText({ ...live.why, terms: live.why.list, advantage: live.advantage })),
    ...(live.noSpread ? [el("p", { class: "warn" }, noSpreadText(live.noSpread))] : []),
  ];
}

/** @param {LivePayload} live */
function whereText({ pinned, rollout, step, token }) {
  const which = pinned ? "the pinned token" : "the first token (pin another on Inspect)";
  return `${which}, rollout ${rollout}, ${step === null ? "outside every step" : `step ${step}`}, token ${token} `;
}

/** @param {number | null} value A number of a formula: whole where it is, with four decimals otherwise. */
const exact = (value) => number(value, Number.isInteger(value) ? 0 : 4);

/** @param {number | null} value The same where it follows a sign. */
const bracketed = (value) => (value !== null && value < 0 ? `(${exact(value)})` : exact(value));

/** @param {Pick<WhyPayload, "total" | "clip"> & { terms: TermPayload[], advantage: number }} live */
export function sumText({ terms, total, clip, advantage }) {
  const sum = terms.map(({ value }) => bracketed(value)).join(" + ") || "0";
  const clipped = clip !== null && Math.abs(total) > clip;
  const equals = terms.length > 1 ? ` = ${exact(total)}` : "";
  return `A = ${sum}${equals}${clipped ? `, clipped to ±${exact(clip)}: ${exact(advantage)}` : ""}`;
}

/** @param {TermPayload} term r → r̃ → what the term adds, with its numbers in the formula's place. */
export function termCells(term) {
  const { scores, weights, reward, raw, mean, std, normalised, factor, value } = term;
  const products = Object.entries(scores).flatMap(([name, score]) =>
    score === null ? [] : [`${exact(weights[name] ?? 1)} · ${bracketed(score)}`]
  );
  const sum = Object.keys(scores).length ? `${products.join(" + ")} = ${exact(reward)}` : exact(reward);
  const start = exact(reward !== null && Math.abs(raw - reward) < SAME ? reward : raw);
  const centred = mean === null ? start : `(${start} ${MINUS} ${bracketed(mean)})`;
  const scaled = std === null ? centred : `${centred} / (${exact(std)} + 0.0001)`;
  const times = factor === 1 ? "" : `× ${exact(factor)}`;
  return [termName(term), sum, `${scaled} = ${exact(normalised)}`, times, exact(value)];
}

// ── what Help says whatever is on screen ─────────────────────────────────────────────────────────────────────

/** @param {GuidePayload} value @param {HTMLElement} numbers */
function sectionsOf(value, numbers) {
  return [
    section("help-formulas", "The numbers on screen", numbers, el("p", { class: "muted" }, FOLLOWED)),
    section("help-schemes", "Credit schemes", ...schemes(value)),
    section("help-metrics", "Metrics of a run", ...glossary(value)),
    section("help-keys", "Keys", terms(value.shortcuts.map(([key, what]) => [el("kbd", {}, key), what]))),
    section("help-api", "From a script", ...api(value.snippet)),
    section("help-trust", "What is trusted", ...value.trust.map((line) => el("p", {}, line))),
  ];
}

/** @param {string} id @param {string} title @param {...Node} children */
const section = (id, title, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);

/** @param {HTMLElement[]} sections */
function contentsOf(sections) {
  const links = sections.map((part) => {
    const title = /** @type {HTMLElement} */ (part.querySelector("h2"));
    const show = (/** @type {Event} */ event) => {
      event.preventDefault();
      part.scrollIntoView();
      title.setAttribute("tabindex", "-1");
      title.focus();
    };
    return el("a", { href: `#${part.id}`, onclick: show }, title.textContent);
  });
  return el("nav", { "aria-label": "On this page" }, ...links);
}

/** @param {string} label @param {string[]} head @param {(HTMLTableRowElement | (string | Node)[])[]} rows */
function table(label, head, rows) {
  const whole = tableOf({}, head.map((name) => name || el("td", {})), rows);
  return el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": label }, whole);
}

/** @param {(string | Node)[][]} rows */
const terms = (rows) =>
  el("dl", { class: "facts" }, ...rows.flatMap(([name, meaning]) => [el("dt", {}, name), el("dd", {}, meaning)]));

/** @param {GuidePayload} value */
function schemes({ schemes, normalisations }) {
  const options = [
    ...new Map(schemes.flatMap((scheme) => scheme.options).map((option) => [option.name, option])).values(),
  ];
  return [
    el("p", {}, STANDARDISED),
    table("Every scheme", ["scheme", "formula", "options and defaults", "source"], schemes.map(schemeRow)),
    el("h3", {}, "Options"),
    terms(options.map(({ label, name, help }) => [el("span", {}, label, " ", el("code", {}, name)), help])),
    el("h3", {}, "Normalise"),
    terms(normalisations.map(({ name, meaning }) => [name, meaning])),
  ];
}

/** @param {SchemeGuide} scheme */
function schemeRow({ name, formula, summary, options, source }) {
  const defaults = options.map((option) => `${option.label}: ${option.default}`).join("\n");
  const about = el("td", {}, el("div", { class: "formula" }, formula), el("div", {}, summary));
  return [name, about, el("td", { class: "defaults" }, defaults), source];
}

/** @param {GuidePayload} value */
function glossary({ metrics, symbols }) {
  const rows = metrics.map((metric) => {
    const { name, formula, meaning, source } = metric;
    const cells = [el("span", { class: "formula" }, formula), meaning, source].map((content) => el("td", {}, content));
    return { metric, node: el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)), ...cells) };
  });
  const count = el("span", { class: "muted", role: "status" });
  const search = el("input", {
    type: "search",
    id: "metric-search",
    "aria-label": "Find a metric",
    placeholder: "Find a metric",
    oninput: (event) => {
      const wanted = event.target.value.trim().toLowerCase();
      for (const { metric, node } of rows) node.hidden = !isAbout(metric, wanted);
      count.textContent = wanted ? `${rows.filter(({ node }) => !node.hidden).length} of ${rows.length}` : "";
    },
  });
  const letters = el("details", { class: "letters" }, el("summary", {}, "What the letters mean"), terms(symbols));
  const whole = table("Every metric", ["name", "formula", "meaning", "from"], rows.map(({ node }) => node));
  return [el("p", {}, search, " ", count), letters, whole];
}

/** @param {MetricPayload} metric @param {string} wanted in lower case */
export const isAbout = ({ name, formula, meaning }, wanted) =>
  `${name} ${formula} ${meaning}`.toLowerCase().includes(wanted);

/** @param {string} template */
function api(template) {
  const snippet = template.replace("{origin}", `${location.origin}${location.pathname}`);
  const message = el("span", { class: "said muted", role: "status" });
  const tell = async () => {
    message.textContent = await copy(snippet) ? " Copied." : " Select the code and copy it.";
  };
  const button = el("button", { type: "button", class: "link", onclick: tell }, "Copy");
  return [
    el("p", {}, "The page's own process answers scripts too, on the same address: ", button, message),
    el("pre", { tabindex: 0, role: "region", "aria-label": "API example" }, snippet),
  ];
}

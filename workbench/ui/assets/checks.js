// Pre-flight findings, exploit probes and the reward clinic.

/** @import { ClinicPayload, FindingPayload, ProbePair, ProbeRow, ProbesPayload } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */
/** @typedef {{ tab: string, edit: string, scheme: string }} ProbeAsked */
/** @typedef {{ findings?: FindingPayload[], busy?: string }} FindingsPayload */
/** @typedef {{ busy: string, rows?: undefined, rewards?: undefined }} Busy What is drawn while probes or the clinic run */
/** @typedef {{ name: string, looks_at: string, forms: string[], tried: number, findings: FindingPayload[], scores: Record<string, number | null> }} Patient */

import { el } from "../../views/dom.js";
import { count, precise, signed } from "../../views/numbers.js";
import { mount } from "../../views/drawing/heatmap.js";
import { sentence } from "../../views/drawing/said.js";
import { address } from "./address.js";
import { answerOf, follow, link } from "./widget.js";

const MARKS = { ok: "✓", check: "check", stop: "stop" };

/** @type {HTMLElement[] | undefined} */
let made;

/** What the checks and the probes of the group on screen came to, among the facts beside its map. */
export function checkFacts() {
  if (!made) {
    made = [el("div"), el("div")];
    tellFact(1, ...probesFact(null), "#probes > button"); // whose panel is not made before it is opened
  }
  return made;
}

/** @param {number} place @param {string} text @param {string} detail @param {string} action @param {string} opens a selector */
function tellFact(place, text, detail, action, opens) {
  const open = (/** @type {string} */ what) => () =>
    /** @type {HTMLElement | null} */ (document.querySelector(what))?.click();
  const act = el("span", { class: "act" }, detail ? " · " : "", link(action, open(opens)));
  if (action === "Pre-flight") act.append(" · ", link("Clinic", open("#clinic > button")));
  const more = el("p", { class: "more-said" }, detail, act);
  checkFacts()[place].replaceChildren(el("p", {}, text), more);
}

/** @param {FindingPayload[]} findings The worst first. */
function listOf(findings) {
  const item = (/** @type {FindingPayload} */ { name, level, value, meaning, advice }) =>
    el(
      "li",
      { class: level },
      el("span", { class: "mark" }, value === "–" ? "" : MARKS[level]),
      el("span", { class: "name" }, name),
      el("b", {}, value),
      el("span", { class: "meaning" }, meaning, ...(advice ? ["; ", el("em", {}, advice)] : [])),
    );
  const rank = (/** @type {FindingPayload} */ { level }) => ["stop", "check", "ok"].indexOf(level);
  const worstFirst = [...findings].sort((a, b) => rank(a) - rank(b));
  return el("ul", { class: "findings" }, ...worstFirst.map(item));
}

/** @param {FindingPayload[]} findings The worst level there is, and the findings of that level in one line. */
export function verdict(findings) {
  const of = (/** @type {string} */ level) => findings.filter((finding) => finding.level === level);
  const names = (/** @type {FindingPayload[]} */ some) => some.map(({ name, value }) => `${name} ${value}`).join(", ");
  const [stop, check] = [of("stop"), of("check")];
  if (stop.length) return { level: "stop", text: `Nothing would be learnt: ${names(stop)}` };
  if (check.length) {
    const need = check.length === 1 ? "needs" : "need";
    return { level: "check", text: `${check.length} of ${findings.length} ${need} a look: ${names(check)}` };
  }
  return { level: "ok", text: `${findings.length} of ${findings.length} checks pass` };
}

/** @param {Handles} handles One line about the group on screen, which opens into all findings. */
export function strip(handles) {
  let open = false;
  follow(handles, (root, /** @type {FindingsPayload | null} */ value) => {
    if (!value?.findings) {
      root.replaceChildren();
      return;
    }
    const { level, text } = verdict(value.findings);
    tellFact(
      0,
      level === "ok" ? text : text.split(":")[0],
      text.split(": ")[1] ?? "",
      "Pre-flight",
      "#preflight-strip summary",
    );
    const summary = el("summary", {}, el("b", {}, "Pre-flight"), ": ", text);
    const details = el("details", { class: `strip ${level}`, open }, summary, listOf(value.findings));
    details.addEventListener("toggle", () => {
      open = details.open;
    });
    root.replaceChildren(details);
  });
}

/** @param {Handles} handles The findings of freshly sampled groups. */
export function findings(handles) {
  follow(handles, (root, /** @type {FindingsPayload | null} */ value) => {
    root.setAttribute("aria-live", "polite");
    root.replaceChildren();
    if (value?.busy) root.append(el("p", { class: "busy" }, value.busy));
    else if (value?.findings) {
      const { level, text } = verdict(value.findings);
      const said = el("p", { class: `verdict ${level}` }, text);
      root.append(said, listOf(value.findings));
      said.scrollIntoView({ block: "nearest" }); // on a phone it stands below the button that asked for it
    }
  });
}

/** @param {Handles<{ pair: Call<ProbeAsked, ProbePair | null> }>} handles What each edit without content gains. */
export function probes(handles) {
  follow(handles, (root, /** @type {ProbesPayload | Busy | null} */ value) => {
    root.setAttribute("aria-live", "polite");
    if (value && !value.rows) {
      root.replaceChildren(el("p", { class: "busy" }, value.busy));
      return;
    }
    tellFact(1, ...probesFact(value), "#probes > button");
    if (!value) {
      root.replaceChildren();
      return;
    }
    const verdict = el("p", { class: "said", role: "status" });
    const sides = el("div", { class: "sides" });
    const tell = async (/** @type {ProbeRow} */ row) => {
      const { edit, scheme } = row;
      verdict.textContent = `${edit} under ${scheme}: ${row.verdict}.`;
      const pair = await answerOf(handles.server.pair({ tab: address.tab, edit, scheme })).catch(() => null);
      sides.replaceChildren(...(pair ? drawnPair(pair) : []));
    };
    const leftOut = Object.entries(value.leftOut).map(([scheme, why]) =>
      el("p", { class: "left-out" }, `${scheme} left out: ${why}`)
    );
    root.replaceChildren(
      el("p", { class: "headline" }, ...sentence(value.said.map(([text, to]) => [text, to]), () => null)),
      el("p", { class: "remedy" }, remedyOf(value)),
      ownTable(value, tell),
      verdict,
      sides,
      el("details", {}, el("summary", {}, "Each edit under every scheme"), probeTable(value, tell), ...leftOut),
    );
  });
}

/** @param {Handles} handles What the rewards get wrong, and what each strategy earns. */
export function clinic(handles) {
  follow(handles, (root, /** @type {ClinicPayload | Busy | null} */ value) => {
    root.setAttribute("aria-live", "polite");
    root.replaceChildren();
    if (!value) return;
    if (!value.rewards) {
      root.append(el("p", { class: "busy" }, value.busy));
      return;
    }
    const rewards = /** @type {Patient[]} */ ([...value.rewards]);
    const together = /** @type {FindingPayload[]} */ ([...value.together]);
    const parts = rewards.flatMap(({ name, looks_at: looksAt, forms, tried, findings }) => {
      const where = forms.length ? `looks at the ${looksAt} in the forms ${forms.join(", ")} · ` : "";
      const about = tried ? `${where}${count(tried, "row")} tried` : "no row fits";
      return [el("h3", {}, name, el("span", { class: "gloss" }, about)), listOf(findings)];
    });
    if (together.length) parts.push(el("h3", {}, "All together"), listOf(together));
    root.append(el("p", { class: "headline" }, value.headline), ...parts, scoreboard(rewards, value.totals));
  });
}

/** @param {Patient[]} rewards @param {Record<string, number | null>} totals What each strategy earns. */
function scoreboard(rewards, totals) {
  const columns = rewards.map(({ name, scores }) => ({ name, scores }));
  if (rewards.length > 1) columns.push({ name: "weighted sum", scores: totals });
  const cell = (/** @type {number | null} */ score) => el("td", {}, score === null ? "–" : precise(score));
  const head = ["strategy", ...columns.map(({ name }) => name)];
  const body = Object.keys(totals).map((strategy) =>
    el("tr", {}, el("th", { scope: "row" }, strategy), ...columns.map(({ scores }) => cell(scores[strategy])))
  );
  return el(
    "table",
    { "aria-label": "What each strategy earns" },
    el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...body),
  );
}

/** @param {ProbesPayload | null} value @returns {[string, string, string]} Fact, detail, action. */
export function probesFact(value) {
  const scheme = value?.own ?? "";
  const rows = value?.rows?.filter((row) => row.scheme === scheme) ?? [];
  if (!rows.length) return ["Not probed yet", "could padding pay?", "Probes"];
  const paid = rows.filter((row) => row.pays_for_no_content).length;
  return [
    `${paid} of ${count(rows.length, "cheating edit")} earn${paid === 1 ? "s" : ""} more`,
    `under ${scheme}`,
    "Probes",
  ];
}

/** @param {ProbePair} pair The answer as it is and with the edit, as heatmaps, and what was gained where. */
function drawnPair({ rollout, drawings, first, at_edit: atEdit }) {
  const holders = drawings.map(() => el("div"));
  const maps = holders.map((holder, i) => {
    const map = mount(holder);
    map.draw(drawings[i]);
    return map;
  });
  const limit = Math.max(...maps.map(({ range }) => range.limit));
  for (const map of maps) map.endScale(limit || null); // a colour means the same number in both
  return holders.map((holder, i) => {
    const gained = i
      ? `: first token ${signed(first[0], 2)} → ${signed(first[1], 2)}, at the edit ${signed(atEdit[0], 2)} → ${
        signed(atEdit[1], 2)
      }`
      : "";
    return el("div", {}, el("h3", {}, i ? "with the edit" : `rollout ${rollout + 1} as it is`, gained), holder);
  });
}

/** @param {ProbesPayload} value Which schemes pay for none of the edits, in words. */
export function remedyOf({ schemes, rows }) {
  const pays = (/** @type {string} */ scheme) => rows.some((row) => row.scheme === scheme && row.pays_for_no_content);
  const paying = schemes.filter(pays), others = schemes.filter((scheme) => !pays(scheme));
  if (!paying.length) return "No scheme here pays for any of these.";
  if (others.length) {
    return `${others.join(", ")} ${others.length === 1 ? "pays" : "pay"} for none of these; choose one under Credit.`;
  }
  return "Every scheme here pays for some: a reward function has to tell the edit from the work, or take its gain away.";
}

/** @param {ProbesPayload} value Edits, those that gain most under the page's own scheme first. */
export function byGain({ own, edits, rows }) {
  const gain = (/** @type {Record<string, string>} */ { name }) =>
    rows.find((row) => row.edit === name && row.scheme === own)?.largest_gain ?? -Infinity;
  return [...edits].sort((a, b) => gain(a) === gain(b) ? 0 : gain(b) - gain(a));
}

/** @param {ProbesPayload} value @param {(row: ProbeRow) => void} tell What edits gain under the page's own scheme. */
function ownTable(value, tell) {
  const { own, rows } = value;
  const body = byGain(value).map(({ name, summary }) => {
    const row = rows.find((row) => row.edit === name && row.scheme === own);
    const paying = rows.filter((row) => row.edit === name && row.scheme !== own && row.pays_for_no_content);
    const [before, after] = [row?.first_token_before ?? null, row?.first_token_after ?? null];
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, name, el("span", { class: "gloss" }, summary)),
      probeCell(row, tell),
      el("td", {}, before === null ? "" : `${signed(before, 2)} → ${signed(after, 2)}`),
      el(
        "td",
        { class: "others", title: paying.map(({ scheme }) => scheme).join(", ") },
        count(paying.length, "other"),
      ),
    );
  });
  const head = ["edit that adds no content", `best case under ${own}`, "first token", "schemes that pay"];
  return el(
    "table",
    { class: "own", "aria-label": `What each edit gains under ${own}` },
    el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...body),
  );
}

/** @param {ProbesPayload} value @param {(row: ProbeRow) => void} tell The page's own scheme is the first. */
function probeTable(value, tell) {
  const { own, schemes, rows } = value;
  const cell = (/** @type {string} */ edit, /** @type {string} */ scheme) =>
    probeCell(rows.find((row) => row.edit === edit && row.scheme === scheme), tell);
  const head = schemes.map((name) => el("th", { scope: "col", class: name === own ? "own" : null }, name));
  const body = byGain(value).map(({ name, summary }) =>
    el("tr", {}, el("th", { scope: "row", title: summary }, name), ...schemes.map((scheme) => cell(name, scheme)))
  );
  const label = "What each edit gains under each scheme";
  return el(
    "div",
    { class: "probe-table", tabindex: 0, role: "region", "aria-label": label },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "edit"), ...head)),
      el("tbody", {}, ...body),
    ),
  );
}

/** @param {ProbeRow | undefined} row @param {(row: ProbeRow) => void} tell */
function probeCell(row, tell) {
  if (!row || row.largest_gain === null) return el("td", { class: "none", title: row?.verdict }, "–");
  const button = el("button", { type: "button", title: row.verdict, onclick: () => tell(row) }, gainText(row));
  return el("td", { class: row.pays_for_no_content ? "pays" : "" }, button);
}

/** @param {Pick<ProbeRow, "largest_gain" | "pays_for_no_content">} row */
export function gainText({ largest_gain: gain, pays_for_no_content: pays }) {
  const size = Math.abs(gain ?? 0);
  if (size >= 0.005) return `${signed(gain, 2)}${pays ? " ▲" : ""}`;
  return pays ? `${(gain ?? 0) > 0 ? "+" : ""}${precise(gain)} ▲` : "0";
}

// The loss lens: which loss a drawing's tokens are read in, which one beside it, and in which pass over the generation.

/** @import { LossPayload } from "../payloads.d.ts" */
/** @import { Credited, Place, Prepared } from "./payload.js" */

import { el, tableOf } from "../dom.js";
import { number, precise } from "../numbers.js";
import { bound, formulaLine, lossFormula, lossParts } from "./formula.js";
import { noiseOf, readRollout, settingsFor } from "./loss.js";

const TYPES = ["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo"];
const ON_POLICY = "on policy: every ratio is 1, and this group is taken for the whole batch";
const NOISE = 1e-3; // a spread of log-probabilities below which rounding is not worth a word
const BY_TOKENS = ["bnpo", "dapo", "cispo", "vespo"]; // which divide by all tokens of a batch

export class Lens {
  /** @param {() => void} changed */
  constructor(changed) {
    /** @type {string | null} the chosen losses; null is the run's own, and none */
    this.type = null;
    /** @type {string | null} */
    this.other = null;
    this.pass = 0;
    /** @type {LossPayload | undefined} */
    this.loss = undefined;
    this.noise = 0;
    const select = (/** @type {string} */ label, /** @type {(value: string) => void} */ pick) =>
      el("select", {
        "aria-label": label,
        onchange: (event) => {
          pick(event.target.value);
          changed();
        },
      });
    this.first = select("Loss", (value) => this.type = value);
    this.second = select("Second loss", (value) => this.other = value || null);
    this.passes = select("Pass", (value) => this.pass = Number(value));
    this.said = el("span", { class: "said" });
    this.passLabel = el("label", {}, "pass ", this.passes);
    this.node = el(
      "div",
      { class: "lens", hidden: true },
      el("label", {}, "Loss ", this.first),
      el("label", {}, "beside ", this.second),
      this.passLabel,
      this.said,
    );
  }

  /** The loss that is looked at. */
  get own() {
    return this.type ?? this.loss?.type ?? "dapo";
  }

  /** @param {Prepared} data Reads every rollout in the chosen losses: `read` of each, and of its twin. */
  read(data) {
    this.loss = data.loss;
    const { loss, own, other } = this;
    if (!loss) return;
    this.pass = Math.min(this.pass, Math.max(0, loss.passes.length - 1));
    this.noise = noiseOf(data.rollouts, loss);
    for (const rollout of data.rollouts) {
      for (const credited of rollout.twin ? [rollout, rollout.twin] : [rollout]) {
        const a = readRollout(settingsFor(loss, own), credited, this.pass);
        const b = other ? readRollout(settingsFor(loss, other), credited, this.pass) : null;
        credited.read = a ? { a, b } : undefined;
        credited.share = credited.normalisers?.[own];
      }
    }
    this.offer(loss);
  }

  /** @param {LossPayload} loss */
  offer(loss) {
    const types = TYPES.includes(loss.type) ? TYPES : [loss.type, ...TYPES];
    const option = (/** @type {string} */ type) =>
      el("option", { value: type }, type === loss.type && loss.passes.length ? `${type}, the run’s` : type);
    this.first.replaceChildren(...types.map(option));
    this.second.replaceChildren(el("option", { value: "" }, "none"), ...types.map(option));
    this.first.value = this.own;
    this.second.value = this.other ?? "";
    this.passLabel.hidden = loss.passes.length < 2;
    this.passes.replaceChildren(
      ...loss.passes.map(({ number, step }, n) => el("option", { value: n }, `${number} (step ${step})`)),
    );
    this.passes.value = `${this.pass}`;
    this.said.textContent = this.sum(loss);
  }

  /** @param {LossPayload} loss What the contributions of the whole step add up to. */
  sum(loss) {
    const seen = loss.passes[this.pass];
    if (!seen) {
      const less = BY_TOKENS.includes(this.own)
        ? `; beside other groups all is smaller, as ${this.own} divides by the batch’s tokens`
        : "";
      return `${ON_POLICY}${less}`;
    }
    const noise = this.noise < NOISE
      ? ""
      : `; sampling and training round differently: a ratio is ±${number(100 * this.noise, 2)} %`;
    if (this.own !== loss.type) return `the run trained on ${loss.type}${noise}`;
    const logged = seen.logged === null ? "" : `; TRL’s loss is ${precise(seen.logged, 6)}`;
    const router = seen.router ? ` with the router’s loss, ${precise(seen.router, 3)}` : "";
    return `Σ over the step’s batch ${precise(seen.total, 6)}${router}${logged}${noise}`;
  }

  /** @param {Prepared} data @param {Place} pinned The formulas with a token's numbers, and every loss of it. */
  explain(data, { g, t }) {
    const { loss } = this;
    const rollout = data.rollouts[g];
    if (!loss || !rollout.read) return null;
    const letters = rollout.twin && data.other ? ["A ", "B "] : [""];
    const schemes = [rollout, ...(letters.length > 1 && rollout.twin ? [rollout.twin] : [])];
    const types = [this.own, ...(this.other ? [this.other] : [])];
    const losses = schemes.flatMap((credited, i) =>
      types.flatMap((type, n) => this.written(loss, type, credited, t, n, letters[i]))
    );
    return el("div", { class: "reason loss-reason" }, ...losses, this.table(loss, rollout, t));
  }

  /** @param {LossPayload} loss @param {string} type @param {Credited} rollout @param {number} t @param {number} n @param {string} letter */
  written(loss, type, rollout, t, n, letter) {
    const read = n ? rollout.read?.b : rollout.read?.a;
    if (!read) return [];
    const seen = rollout.loss?.passes[this.pass];
    const logp = (seen ? seen.logprobs : rollout.raw ?? rollout.logprobs)?.[t] ?? 0;
    const parts = lossParts(loss, type, read, rollout, t, {
      logp,
      weight: seen?.weights?.[t] ?? 1,
      bonus: seen?.bonus?.[t] ?? null,
    });
    return [formulaLine([lossFormula(loss, type)], `${letter}${type}`), formulaLine(parts)];
  }

  /** @param {LossPayload} loss @param {Credited} rollout @param {number} t The token under every loss. */
  table(loss, rollout, t) {
    const rows = TYPES.flatMap((type) => {
      const read = readRollout(settingsFor(loss, type), rollout, this.pass);
      if (!read) return [];
      const side = read.clipped[t] ? bound(read.clipped[t]) : "";
      const cells = [
        precise(read.normaliser, 3),
        number(read.factor[t], 4),
        side,
        precise(read.kl[t] * read.normaliser, 2),
        precise(read.contribution[t], 3),
        precise(read.push[t], 3),
      ];
      return [[type === this.own ? el("b", {}, type) : type, ...cells]];
    });
    const region = { class: "terms", tabindex: 0, role: "region", "aria-label": "The token under every loss" };
    const table = tableOf({}, ["", "c", "f(ρ)", "held by", "c β k₃", "adds", "push"], rows);
    return el("details", {}, el("summary", {}, "Under every loss"), el("div", region, table));
  }
}

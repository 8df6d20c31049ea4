// The token heatmap: draws one group's payload (see payload.js) into an element of class "wh".
//
// The same modules run on the page, in a notebook's output and in the exported file, so they need nothing but the
// element. Whatever a model wrote goes in through textContent only.

/** @import { Credited, GroupPayload, Measure, Place, Prepared, Why } from "./payload.js" */
/** @import { Stream } from "./stream.js" */

import { el } from "../dom.js";
import { card, drawMore, rank, relabel, STEPS, summary } from "./cards.js";
import { comparison } from "./compare.js";
import { drawn, equalTo, firstOf, keyOf } from "./copies.js";
import { pinnedDetails } from "./details.js";
import { asksForSearch, Finder } from "./finder.js";
import { arranged, isShort, judge, missed } from "./finding.js";
import { moveFocus, uncover } from "./focus.js";
import { makeLegend } from "./legend.js";
import { MEASURES, ofWhole, rangeOf, tint } from "./measures.js";
import { markText } from "./marking.js";
import { noticesOf } from "./notices.js";
import { Overview } from "./overview.js";
import { measuresOf, rowSummary } from "./rows.js";
import { beginStreams, showTexts } from "./stream.js";
import { replaceCards, rolloutOf } from "./replacing.js";
import { makeTip } from "./tip.js";
import { prepare } from "./tokens.js";

const KEPT_CLASSES = ["eos", "empty", "straddles", "flips", "foreign", "match", "pinned"]; // of a token, whatever it is coloured by
const MOVES = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"];
const EMPTY = { rollouts: [], prompt: "" };

/** A drawing of groups in an element; `root.heatmap` is the drawing, for the console and for tests. */
export class Heatmap {
  /**
   * @param {HTMLElement} root
   * @param {{
   *   onPin?: ((pinned: Place | null) => void) | null,
   *   explain?: ((rollout: number, token: number, which: "a" | "b") => Promise<Why | null | undefined>) | null,
   *   onRemedy?: ((label: string) => void) | null,
   * }} [options] `explain` promises the terms of a token where the payload has none; `onRemedy` gives a group spread
   */
  constructor(root, { onPin = null, explain = null, onRemedy = null } = {}) {
    this.root = root;
    this.onPin = onPin;
    this.explain = explain;
    this.onRemedy = onRemedy;
    /** @type {((key: string) => void) | null} called when somebody chooses what tokens are coloured by */
    this.onColour = null;
    /** @type {Prepared} */
    this.data = prepare(EMPTY);
    this.offered = MEASURES;
    /** @type {Measure} what was chosen, and what is drawn: another one while a group lacks it */
    this.chosen = this.measure = MEASURES[0];
    this.order = "sampled";
    /** @type {Place | null} kept through redraws, so that its numbers follow an edit */
    this.pinned = null;
    /** @type {Set<string>} completions whose copies are drawn, too, by `keyOf` */
    this.unfolded = new Set();
    /** @type {string | null} the reward that tells right answers from wrong ones */
    this.judgedBy = null;
    this.range = { limit: 0, below: false, above: false };
    /** @type {Map<string, number>} where the scale of a measure's key ends, if set or held by hand */
    this.ends = new Map();
    /** @type {Stream[] | null} */
    this.streams = null;
    this.about = el("div", { class: "summary" });
    this.notices = el("div", { class: "notices" });
    this.compared = el("div", { class: "compared" });
    this.cards = el("div", { class: "cards" });
    this.details = el("section", { class: "details", "aria-label": "Why this colour", hidden: true });
    this.tip = makeTip();
    this.legend = this.makeLegend();
    this.finder = new Finder({
      onFind: () => this.arrange(),
      onOrder: (order) => {
        this.order = order;
        this.arrange();
      },
    });
    this.overview = new Overview((g, k) => this.pinStepOf(g, k));
    root.classList.add("wh");
    const { about, notices, compared, legend, finder, overview, cards, details, tip } = this;
    const above = [about, notices, compared, legend.node, finder.node, overview.node, finder.nothing];
    root.replaceChildren(...above, cards, details, tip.node);
    this.listen();
    Object.assign(root, { heatmap: this });
  }

  makeLegend() {
    return makeLegend({
      onMeasure: (key) => {
        this.choose(key);
        this.onColour?.(key);
      },
      onEnd: (size) => this.endScale(size),
      onHold: (on) => this.endScale(on ? this.range.limit : null),
      onEdges: (on) => this.cards.classList.toggle("edges", on),
    });
  }

  // ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** @param {GroupPayload | string} payload */
  draw(payload) {
    const focused = this.focused();
    this.data = prepare(typeof payload === "string" ? JSON.parse(payload) : payload);
    this.streams = null;
    rank(this.data.rollouts);
    this.judgedBy = judge(this.data);
    this.offered = measuresOf(this.data);
    this.measure = this.offered.find(({ key }) => key === this.chosen.key) ?? this.offered[0] ?? this.chosen;
    this.legend.offer(this.offered, this.measure);
    this.finder.offer(this.data);
    this.unfoldPinned();
    this.drawHead();
    this.root.classList.remove("dim");
    this.redraw(focused);
  }

  /** @param {ReturnType<Heatmap["focused"]>} focused Draws every card anew. */
  redraw(focused) {
    this.drawCards(focused?.g ?? -1);
    this.colour();
    this.arrange();
    this.tip.hide();
    this.refocus(focused);
    this.repin();
  }

  /** @param {number} g Draws the copies of a completion, each on a card, or all as one. */
  fold(g) {
    const key = keyOf(this.data.rollouts[g]);
    if (!this.unfolded.delete(key)) this.unfolded.add(key);
    else if (this.pinned && this.pinned.g !== g && firstOf(this.data, this.pinned.g) === g) this.unpin();
    this.redraw(null);
    const button = this.cards.querySelector(`.rollout[data-g="${g}"] .copies`);
    /** @type {HTMLElement | null} */ (button)?.focus({ preventScroll: true });
  }

  /** A pinned token is on a card: whether something was unfolded for it. */
  unfoldPinned() {
    const copyOf = this.pinned ? this.data.rollouts[this.pinned.g]?.copyOf : undefined;
    if (copyOf === undefined) return false;
    const before = this.unfolded.size;
    return this.unfolded.add(keyOf(this.data.rollouts[copyOf])).size > before;
  }

  /** The lines above the cards: the group in numbers, notices, and what two schemes disagree about. */
  drawHead() {
    const { data } = this;
    const scored = data.rollouts.some((rollout) => rollout.steps);
    const about = data.facts ? rowSummary(data.facts) : scored ? summary(data.rollouts) : [];
    this.about.replaceChildren(...about);
    this.notices.replaceChildren(...noticesOf(data, this.onRemedy));
    this.compared.replaceChildren(...(data.other ? comparison(data, (g, t) => this.pin(g, t)) : []));
    this.cards.classList.toggle("marks", data.rollouts.some(({ wrong }) => wrong?.includes(true)));
    this.cards.classList.toggle("two", Boolean(data.other || data.measures));
    this.cards.classList.toggle("pair", Boolean(data.measures && data.rollouts.length > 1));
    this.cards.classList.toggle("short", isShort(data));
  }

  /** @param {number} focused the rollout that has the focus */
  drawCards(focused) {
    const shown = drawn(this.data, this.unfolded);
    replaceCards(
      this.cards,
      focused,
      shown.map((g) => {
        const folded = equalTo(this.data, g).some((copy) => !shown.includes(copy));
        return card(this.data, g, this.measure, { folded });
      }),
    );
  }

  /** Colours every token and chip by the chosen measure without rebuilding anything. */
  colour() {
    const { measure, data } = this;
    if (!this.offered.includes(measure)) return; // a group that nothing has scored
    this.range = rangeOf(data.rollouts, measure, this.ends.get(measure.key));
    this.cards.classList.toggle("one", Boolean(measure.one));
    for (const article of this.cards.children) {
      const rollout = data.rollouts[Number(rolloutOf(article))];
      this.colourTokens(article, rollout);
      this.colourChips(article, rollout);
    }
    this.overview.colour(measure, this.range.limit);
    this.legend.show(measure, this.range, this.ends.has(measure.key));
    this.legend.read(data, measure, this.judgedBy);
  }

  /** @param {Element} article @param {Credited} rollout */
  colourTokens(article, rollout) {
    const { measure, range } = this;
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (article.querySelectorAll(".text i"))) {
      const kept = node.className ? KEPT_CLASSES.filter((name) => node.classList.contains(name)) : [];
      const credited = rollout.twin && !measure.one && node.closest(".second") ? rollout.twin : rollout;
      const look = [...kept, tint(measure.token(credited, Number(node.dataset.t)), range.limit, measure)].join(" ")
        .trim();
      if (node.className !== look) node.className = look;
    }
  }

  /** @param {Element} article @param {Credited} rollout */
  colourChips(article, rollout) {
    const here = this.pinned && this.pinned.g === rolloutOf(article) ? rollout.stepOf[this.pinned.t] : -1;
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (article.querySelectorAll(".chip"))) {
      const k = Number(node.dataset.k);
      node.className = `chip ${tint(ofWhole(this.measure, rollout, k), this.range.limit, this.measure)}`.trim();
      if (here === k) node.classList.add("pinned");
    }
  }

  /** Orders the cards, hides those that are not looked for, and draws the overview of the others. */
  arrange() {
    const { data } = this;
    const { wish } = this.finder;
    const articles = new Map([...this.cards.children].map((article) => [Number(rolloutOf(article)), article]));
    const { places, shown, folded, count } = arranged(data, [...articles.keys()], this.order, wish);
    for (const [g, article] of articles) /** @type {HTMLElement} */ (article).hidden = !shown.includes(g);
    const sorted = places.map((g) => /** @type {Element} */ (articles.get(g)));
    if (sorted.some((article, i) => article !== this.cards.children[i])) this.cards.append(...sorted);
    this.overview.draw(data, shown, { measure: this.measure, limit: this.range.limit, folded });
    this.overview.mark(this.pinned);
    this.finder.count(count, data.rollouts.length);
    this.finder.sayNothing(places.length && !shown.length ? missed(wish) : "");
    markText(this.cards, wish.text);
  }

  // ── texts that grow while a group is being sampled ───────────────────────────────────────────────────────────

  /** @param {string[]} texts @param {boolean[]} [finished] */
  stream(texts, finished = []) {
    if (this.streams?.length !== texts.length) this.beginStream(texts.length);
    showTexts(/** @type {Stream[]} */ (this.streams), texts, finished);
  }

  /** @param {number} total */
  beginStream(total) {
    this.unpin();
    this.legend.node.hidden = this.finder.node.hidden = true;
    this.finder.sayNothing("");
    this.overview.hide();
    for (const node of [this.about, this.notices, this.compared]) node.replaceChildren();
    this.root.classList.remove("dim");
    this.streams = beginStreams(total);
    this.cards.replaceChildren(...this.streams.map(({ card }) => card));
  }

  /** @param {boolean} on The old group stays readable while a new one is on its way. */
  dim(on) {
    this.root.classList.toggle("dim", on);
  }

  // ── what is coloured ─────────────────────────────────────────────────────────────────────────────────────────

  /** What was chosen to be coloured, by its key. */
  get colouredBy() {
    return (this.measure.key === this.chosen.key ? this.chosen : MEASURES[0]).key;
  }

  /** @param {string | null} key Colours by a measure, if it is offered. */
  colourBy(key) {
    if (key !== null && this.legend.choose(key)) this.choose(key);
  }

  /** @param {string} key */
  choose(key) {
    this.measure = this.chosen = this.offered.find((measure) => measure.key === key) ?? this.chosen;
    this.colour();
    for (const article of this.cards.children) {
      relabel(article, this.data.rollouts[Number(rolloutOf(article))], this.measure);
    }
    this.arrange();
    if (this.pinned) this.showPinned();
  }

  /** @param {number | null} size Where the scale ends until it is set again; null is the 98th percentile. */
  endScale(size) {
    if (size === null) this.ends.delete(this.measure.key);
    else this.ends.set(this.measure.key, size);
    this.colour();
  }

  // ── the pinned token ─────────────────────────────────────────────────────────────────────────────────────────

  /** @param {number} g @param {number} t */
  pin(g, t) {
    this.pinned = { g, t };
    if (this.unfoldPinned()) this.redraw(this.focused());
    if (this.cards.querySelector(`.rollout[data-g="${g}"][hidden]`)) this.finder.clear(); // it is on a card
    this.tip.hide();
    this.showPinned();
    this.uncoverPinned();
    this.onPin?.(this.pinned);
  }

  unpin() {
    if (!this.pinned) return;
    const { g, t } = this.pinned;
    this.pinned = null;
    this.details.hidden = true;
    this.unmark();
    const k = this.data.rollouts[g]?.stepOf[t];
    if (this.details.contains(document.activeElement) && k !== undefined) {
      this.find(g, k, STEPS)?.focus({ preventScroll: true });
    }
    this.onPin?.(null);
  }

  /** Shows the pinned token anew after a drawing, or unpins what the drawing has no more. */
  repin() {
    if (!this.pinned) return;
    const rollout = this.data.rollouts[this.pinned.g];
    if (rollout?.steps && this.pinned.t < rollout.texts.length) this.showPinned();
    else this.unpin();
  }

  showPinned() {
    const { data, measure, pinned } = this;
    if (!pinned) return;
    const { g, t } = pinned;
    const article = this.cards.querySelector(`.rollout[data-g="${g}"]`);
    const k = data.rollouts[g].stepOf[t];
    this.unmark();
    const marked = `.text i[data-t="${t}"]${k < 0 ? "" : `, [data-k="${k}"]`}`;
    for (const node of article?.querySelectorAll(marked) ?? []) node.classList.add("pinned");
    this.overview.mark(pinned);
    this.details.replaceChildren(...pinnedDetails(data, pinned, measure, {
      onUnpin: () => this.unpin(),
      ask: (rollout, which) => this.askWhy(rollout, which),
    }));
    this.details.hidden = false;
  }

  uncoverPinned() {
    uncover(this.cards.querySelector(".text:not(.second) i.pinned"), this.legend.node, this.details);
  }

  unmark() {
    for (const node of this.cards.querySelectorAll(".pinned")) node.classList.remove("pinned");
    this.overview.mark(null);
  }

  /** @param {Credited} rollout @param {"a" | "b"} which Asks for the terms that the payload did not bring. */
  askWhy(rollout, which) {
    if (!rollout.advantages || !this.explain || !this.pinned) return;
    const { pinned, data } = this;
    this.explain(pinned.g, pinned.t, which).then((why) => {
      if (!why || pinned !== this.pinned || data !== this.data) return; // another token or another drawing by now
      (rollout.why ??= []).push(why);
      this.showPinned();
      this.uncoverPinned();
    }, () => {}); // the rest of the details stands without it
  }

  // ── keyboard and pointer ─────────────────────────────────────────────────────────────────────────────────────

  /** @param {number | null} g @param {number} k @param {string} kind @returns {HTMLElement | null} */
  find(g, k, kind) {
    return this.cards.querySelector(`.rollout[data-g="${g}"] ${kind}[data-k="${k}"]`);
  }

  /** The step or chip that has the focus. */
  focused() {
    const node = /** @type {HTMLElement | null} */ (document.activeElement?.closest(".step, .chip") ?? null);
    if (!node || !this.cards.contains(node)) return null;
    return { g: rolloutOf(node), k: Number(node.dataset.k), kind: node.classList.contains("chip") ? ".chip" : STEPS };
  }

  /** @param {{ g: number | null, k: number, kind: string } | null} focused */
  refocus(focused) {
    const first = /** @type {HTMLElement | null} */ (this.cards.querySelector(STEPS));
    if (first) first.tabIndex = 0;
    if (focused) this.find(focused.g, focused.k, focused.kind)?.focus({ preventScroll: true });
  }

  listen() {
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.cards.addEventListener("click", (event) => this.clicked(/** @type {Element} */ (event.target)));
    for (const part of [this.cards, this.overview.node]) {
      part.addEventListener("pointerover", (event) => this.pointedAt(event));
      part.addEventListener("pointerleave", () => this.tip.hide());
    }
    document.addEventListener("keydown", (event) => {
      if (this.finder.node.hidden || !asksForSearch(event, this.root)) return;
      event.preventDefault();
      this.finder.search.focus();
    });
    addEventListener("scroll", () => this.tip.hide(), { passive: true, capture: true });
  }

  /** @param {PointerEvent} event Shows the tip of what the pointer is over. */
  pointedAt({ target, pointerType }) {
    const over = pointerType === "touch" || this.streams
      ? null
      : /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest(".text i, .chip, .cell"));
    this.tip.hide();
    const g = Number(over?.dataset.g ?? (over && rolloutOf(over)));
    if (over) this.tip.show(over, this.data.rollouts[g], g, this.measure);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.key === "Escape" && this.pinned) {
      this.unpin();
      return;
    }
    if (this.overview.pressed(event)) {
      event.preventDefault();
      return;
    }
    const step = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest(STEPS));
    if (!step) return;
    if (MOVES.includes(event.key)) moveFocus(this.cards, step, event.key);
    else if (event.key === "Enter" || event.key === " ") this.pinStep(step);
    else return;
    event.preventDefault();
  }

  /** @param {Element} target */
  clicked(target) {
    const more = target.closest("[data-more]");
    const g = rolloutOf(target);
    if (g === null) return;
    if (target.closest("[data-fold]")) {
      this.fold(g);
      return;
    }
    if (more) {
      drawMore(/** @type {Element} */ (more.closest(".rollout")), this.data, g, this.measure);
      this.colour();
      return;
    }
    if (this.streams || String(getSelection()) || !this.data.rollouts[g].steps) return; // selecting text is not pinning
    const token = /** @type {HTMLElement | null} */ (target.closest(".text i"));
    const chip = /** @type {HTMLElement | null} */ (target.closest(".chip"));
    if (token) this.pin(g, Number(token.dataset.t));
    else if (chip) this.pinStep(chip);
  }

  /** @param {HTMLElement} node Pins the last token of the step that a step's text or chip is of. */
  pinStep(node) {
    this.pinStepOf(Number(rolloutOf(node)), Number(node.dataset.k));
  }

  /** @param {number} g @param {number} k */
  pinStepOf(g, k) {
    const { steps } = this.data.rollouts[g];
    if (steps) this.pin(g, steps[k].last);
  }
}

/** @param {HTMLElement} root @param {ConstructorParameters<typeof Heatmap>[1]} [options] */
export const mount = (root, options) => new Heatmap(root, options);

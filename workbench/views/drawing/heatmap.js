// The token heatmap: draws one group's payload (see payload.js) into an element of class "wh".
//
// The same modules run on the page, in a notebook's output and in the exported file, so they need nothing but the
// element. Whatever a model wrote goes in through textContent only.

/** @import { GroupPayload } from "../payloads.d.ts" */
/** @import { Measure, Place, Prepared, Why } from "./payload.js" */
/** @import { Boxes } from "./replacing.js" */
/** @import { Stream } from "./stream.js" */

import { el } from "../dom.js";
import { card, colourTokens, isFolded, rank, relabel, STEPS } from "./cards.js";
import { drawn, equalTo, firstOf, keyOf } from "./copies.js";
import { asksForSearch, Finder } from "./finder.js";
import { arranged, fits, judge, missed } from "./finding.js";
import { focusedStep, focusStep, nextStep, refocus, scrollTo, stepNode } from "./focus.js";
import { Legend } from "./legend.js";
import { Lens } from "./lens.js";
import { MEASURES, rangeOf } from "./measures.js";
import { markText } from "./marking.js";
import { noticesOf } from "./notices.js";
import { MOVES, Overview } from "./overview.js";
import { Pin } from "./pin.js";
import { measuresOf, rowSummary } from "./rows.js";
import { beginStreams, showTexts } from "./stream.js";
import { boxesOf, isInSight, replaceCards, rolloutOf } from "./replacing.js";
import { factElement, sentence, showPrompt } from "./said.js";
import { makeTip } from "./tip.js";
import { lineWidth, prepare } from "./tokens.js";
import { toggleFold } from "./turns.js";

const EMPTY = { rollouts: [], prompt: "" };
const AT_ONCE = 1000; // tokens that are drawn before a card comes near what is in sight

/** A drawing of groups in an element; `root.heatmap` is the drawing, for the console and for tests. */
export class Heatmap {
  /**
   * @param {HTMLElement} root
   * @param {{
   *   onPin?: ((pinned: Place | null) => void) | null,
   *   explain?: ((rollout: number, token: number, which: "a" | "b") => Promise<Why | null | undefined>) | null,
   *   onRemedy?: ((label: string) => void) | null,
   *   actions?: Record<string, () => void>,
   *   facts?: HTMLElement[],
   * }} [options] `explain` promises the terms of a token where the payload has none; `onRemedy` gives a group spread;
   *   `actions` are what can be done about a fact, and `facts` more of them
   */
  constructor(root, { onPin = null, explain = null, onRemedy = null, actions = {}, facts = [] } = {}) {
    this.root = root;
    this.actions = actions;
    this.facts = facts;
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
    this.order = "surprise";
    /** @type {Set<string>} completions whose copies are drawn, too, by `keyOf` */
    this.unfolded = new Set();
    /** @type {string | null} the reward that tells right answers from wrong ones */
    this.judgedBy = null;
    this.range = { limit: 0, ofSteps: 0, below: false, above: false };
    /** @type {Map<string, number>} where the scale of a measure's key ends, if set or held by hand */
    this.ends = new Map();
    /** @type {Stream[] | null} */
    this.streams = null;
    this.prompt = el("h2", { class: "prompt", tabindex: 0 });
    this.said = el("div", { class: "sentences" });
    this.about = el("div", { class: "summary" });
    this.notices = el("div", { class: "notices" });
    this.cards = el("div", { class: "cards" });
    this.source = el("footer", { class: "source" });
    this.tip = makeTip();
    this.legend = new Legend({
      onMeasure: (key) => {
        this.choose(key);
        this.onColour?.(key);
      },
      onEnd: (size) => this.endScale(size),
      onHold: (on) => this.endScale(on ? this.range.limit : null),
      onEdges: (on) => this.cards.classList.toggle("edges", on),
    });
    this.lens = new Lens(() => {
      this.lens.read(this.data);
      this.offerMeasures();
      this.choose(this.measure.key);
    });
    this.finder = new Finder({
      onFind: () => this.arrange(),
      onOrder: (order) => {
        this.order = order;
        this.arrange();
      },
    });
    this.overview = new Overview(
      (g, k) => this.pinStepOf(this.shownFor(g), k),
      ({ g, k }) => this.pinning.place && this.pinStepOf(this.shownFor(g), k, { uncover: false }),
    );
    this.pinning = new Pin(this);
    this.nearing = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) this.drawTokens(target);
    }, { rootMargin: "100% 0px" });
    root.classList.add("wh");
    const { said, about, notices, legend, lens, finder, overview, cards, pinning, tip } = this;
    const side = el("div", { class: "side" }, about, legend.node, lens.node, finder.node);
    const head = el("div", { class: "lead" }, overview.node, side);
    const board = el("div", { class: "board" }, el("div", {}, cards, pinning.details));
    root.replaceChildren(this.prompt, said, notices, head, finder.nothing, board, this.source, tip.node);
    this.listen();
    Object.assign(root, { heatmap: this });
  }

  // ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** @param {GroupPayload | string} payload */
  draw(payload) {
    const focused = focusedStep(this.cards), boxes = boxesOf(this.cards); // before anything changes the layout
    const { prompt } = this.data;
    this.data = prepare(typeof payload === "string" ? JSON.parse(payload) : payload);
    if (this.data.prompt !== prompt) this.forgetPin();
    this.streams = null;
    rank(this.data.rollouts);
    this.judgedBy = judge(this.data);
    this.lens.read(this.data);
    this.offerMeasures();
    this.finder.offer(this.data);
    this.unfoldPinned();
    this.drawHead();
    this.root.classList.remove("dim");
    this.redraw(focused, boxes);
  }

  /** What the group can be coloured by; what was chosen stays chosen while it is missing. */
  offerMeasures() {
    this.offered = measuresOf(this.data);
    this.measure = this.offered.find(({ key }) => key === this.chosen.key) ?? this.offered[0] ?? this.chosen;
    this.legend.offer(this.offered, this.measure);
  }

  /** @param {ReturnType<typeof focusedStep>} focused @param {Boxes} [boxes] of the cards. Draws every card anew. */
  redraw(focused, boxes = boxesOf(this.cards)) {
    this.drawCards(focused?.g ?? null, boxes);
    this.colour();
    this.arrange();
    this.tip.hide();
    refocus(this.cards, focused);
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

  /** What is said of the group: sentences, facts and notices. */
  drawHead() {
    const { data } = this;
    this.prompt.hidden = !data.prompt;
    showPrompt(this.prompt, data.prompt);
    // A group without spread has a notice, which says why and what would change it.
    const said = (data.said ?? []).slice(0, data.noSpread ? 1 : undefined);
    const follow = (/** @type {string} */ target) => this.follow(target);
    this.said.replaceChildren(...said.map((parts) => el("p", {}, ...sentence(parts, follow))));
    const act = (/** @type {string} */ action) =>
      this.actions[action] ?? (action && this.onRemedy ? () => this.onRemedy?.(action) : null);
    const facts = (data.glance ?? []).map((fact) => factElement(fact, follow, act(fact.action)));
    this.about.replaceChildren(...(data.facts ? rowSummary(data.facts) : facts), ...(data.glance ? this.facts : []));
    this.notices.replaceChildren(...noticesOf(data, this.onRemedy));
    this.source.replaceChildren(
      ...(data.source ?? []).filter(([name]) => name !== "prompt").map(([name, text]) =>
        el("span", {}, el("em", {}, name), ` ${text}`)
      ),
    );
    this.cards.classList.toggle("two", Boolean(data.other || data.measures));
    this.cards.classList.toggle("pair", Boolean(data.measures && data.rollouts.length > 1));
    this.cards.parentElement?.style.setProperty("--wh-longest", `${lineWidth(data)}`);
  }

  /**
   * Draws token by token what is in sight, or the first cards, and the others as they come near.
   * @param {number | null} focused the rollout that has the focus @param {Boxes} boxes
   */
  drawCards(focused, boxes) {
    const shown = drawn(this.data, this.unfolded);
    const { places } = arranged(this.data, shown, this.order, this.finder.wish);
    let tokens = 0;
    const articles = places.map((g, i) => {
      const folded = equalTo(this.data, g).some((copy) => !shown.includes(copy));
      tokens += this.data.rollouts[g].texts.length;
      const box = boxes.get(g);
      const plain = (box ? !isInSight(box) : tokens > AT_ONCE && i > 0) && g !== focused;
      return card(this.data, g, this.measure, { folded, plain });
    });
    this.nearing.disconnect();
    replaceCards(this.cards, boxes, focused, articles, () => {
      for (const article of this.cards.querySelectorAll(".plain")) this.nearing.observe(article);
    });
  }

  /** @param {Element} article @returns {Element} the card with its tokens, which are drawn if it has its plain text alone */
  drawTokens(article) {
    return article.isConnected && article.classList.contains("plain") ? this.redrawCard(article) : article;
  }

  /** Draws the tokens of every card. */
  drawAll() {
    for (const article of this.cards.querySelectorAll(".plain")) this.drawTokens(article);
  }

  /** @param {Element} article @param {{ whole?: boolean }} [options] @returns {HTMLElement} the new card */
  redrawCard(article, options) {
    const { data, measure, pinning } = this;
    const g = Number(rolloutOf(article));
    const made = card(data, g, measure, { ...options, folded: isFolded(article) });
    made.hidden = /** @type {HTMLElement} */ (article).hidden;
    if (this.offered.includes(measure)) colourTokens(made, data.rollouts[g], measure, this.range.limit);
    article.replaceWith(made);
    if (pinning.place?.g === g) pinning.mark();
    if (this.finder.wish.text) markText(this.cards, this.finder.wish.text);
    return made;
  }

  /** Colours every token and chip by the chosen measure without rebuilding anything. */
  colour() {
    const { measure, data } = this;
    if (!this.offered.includes(measure)) return; // a group that nothing has scored
    this.range = rangeOf(data.rollouts, measure, this.ends.get(measure.key));
    this.cards.classList.toggle("one", Boolean(measure.one));
    this.lens.node.hidden = !measure.ofLoss || !data.loss;
    for (const article of this.cards.children) {
      const rollout = data.rollouts[Number(rolloutOf(article))];
      colourTokens(article, rollout, measure, this.range.limit);
    }
    this.legend.show(measure, this.range, this.ends.has(measure.key));
    this.legend.read(data, measure, this.judgedBy);
  }

  /** Orders the cards, hides those that are not looked for, and draws the overview of the others. */
  arrange() {
    const { data } = this;
    const { wish } = this.finder;
    const articles = new Map([...this.cards.children].map((article) => [Number(rolloutOf(article)), article]));
    const { places, shown, fitting } = arranged(data, [...articles.keys()], this.order, wish);
    for (const [g, article] of articles) /** @type {HTMLElement} */ (article).hidden = !shown.includes(g);
    const sorted = places.map((g) => /** @type {Element} */ (articles.get(g)));
    if (sorted.some((article, i) => article !== this.cards.children[i])) this.cards.append(...sorted);
    this.overview.draw(data, fitting, this.measure, this.range.ofSteps);
    this.overview.mark(this.pinning.place);
    this.finder.count(fitting.length, data.rollouts.length);
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
    this.forgetPin();
    this.legend.node.hidden = this.finder.node.hidden = true;
    this.finder.sayNothing("");
    this.overview.hide();
    for (const node of [this.said, this.about, this.notices, this.source]) node.replaceChildren();
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
    this.pinning.show();
  }

  /** @param {number | null} size Where the scale ends until it is set again; null is the 98th percentile. */
  endScale(size) {
    if (size === null) this.ends.delete(this.measure.key);
    else this.ends.set(this.measure.key, size);
    this.colour();
    this.arrange();
  }

  // ── the pinned token ─────────────────────────────────────────────────────────────────────────────────────────

  /** The token that somebody pinned. */
  get pinned() {
    return this.pinning.isOwn ? this.pinning.place : null;
  }

  /** @param {number} g The rollout on whose card it is. */
  shownFor(g) {
    return this.cards.querySelector(`.rollout[data-g="${g}"]`) ? g : firstOf(this.data, g);
  }

  /** @param {number} g @param {number} t @param {{ uncover?: boolean }} [options] */
  pin(g, t, { uncover = true } = {}) {
    this.pinning.set({ g, t });
    if (this.unfoldPinned()) this.redraw(focusedStep(this.cards));
    if (this.cards.querySelector(`.rollout[data-g="${g}"][hidden]`)) this.finder.clear(); // it is on a card
    this.tip.hide();
    this.lens.node.hidden = !this.data.loss || !this.measure.ofLoss;
    this.pinning.show();
    if (uncover) this.pinning.uncover();
    this.onPin?.(this.pinned);
  }

  unpin() {
    const { place, isOwn } = this.pinning;
    if (!place) return;
    const k = this.data.rollouts[place.g]?.stepOf[place.t];
    if (this.pinning.clear() && k !== undefined) focusStep(this.cards, stepNode(this.cards, { g: place.g, k }));
    if (isOwn) this.onPin?.(null);
  }

  /** Forgets the pin of another group: what surprises in the next one is explained, also where the panel was closed. */
  forgetPin() {
    const { isOwn } = this.pinning;
    this.pinning.clear();
    this.pinning.isClosed = false;
    if (isOwn) this.onPin?.(null);
  }

  /** Explains the same token anew after a drawing, or that which the drawing opens with. */
  repin() {
    if (this.pinned && !this.pinning.isDrawn) {
      this.pinning.isOwn = false;
      this.onPin?.(null);
    }
    this.pinning.open();
    if (this.pinning.isDrawn) this.pinning.show();
    else this.unpin();
  }

  // ── keyboard and pointer ─────────────────────────────────────────────────────────────────────────────────────

  listen() {
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.cards.addEventListener("click", (event) => this.clicked(/** @type {Element} */ (event.target)));
    for (const event of ["pointerover", "focusin", "pointerout", "focusout"]) {
      const isOver = ["pointerover", "focusin"].includes(event);
      for (const part of [this.said, this.about]) {
        part.addEventListener(event, ({ target }) => {
          const link = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest("[data-target]"));
          this.overview.light(isOver && link ? this.cellsOf(link.dataset.target ?? "") : []);
        });
      }
    }
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
    addEventListener("beforeprint", () => this.drawAll());
  }

  /** @param {PointerEvent} event Shows the tip of what the pointer is over. */
  pointedAt({ target, pointerType }) {
    const over = pointerType === "touch" || this.streams
      ? null
      : /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest(".text i, .step > .chip, .cell"));
    this.tip.hide();
    const g = Number(over?.dataset.g ?? (over && rolloutOf(over)));
    if (over) this.tip.show(over, this.data.rollouts[g], g, this.measure);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const target = /** @type {Element} */ (event.target);
    if (event.key === "Escape" && this.pinning.place) {
      this.unpin();
      return;
    }
    if (target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = /** @type {HTMLElement | null} */ (target.closest(STEPS));
    if (event.key === "," || event.key === ".") this.pinToken(event.key === "." ? 1 : -1);
    else if (this.overview.pressed(event)) this.tip.hide();
    else if (step && MOVES.includes(event.key)) {
      this.moveTo(nextStep(this.cards, step, event.key, (article) => this.drawTokens(article)));
    } else if (step && (event.key === "Enter" || event.key === " ")) this.pinStep(step);
    else return;
    event.preventDefault();
  }

  /** @param {HTMLElement | undefined} step The focus goes there, and with it what is explained. */
  moveTo(step) {
    if (this.pinning.place && step) this.pinStep(step);
    focusStep(this.cards, step);
    scrollTo(step);
  }

  /** @param {number} by Pins the token before or after the one that is explained. */
  pinToken(by) {
    const { place } = this.pinning;
    const t = place ? place.t + by : -1;
    if (place && this.data.rollouts[place.g]?.texts[t] !== undefined) this.pin(place.g, t);
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
    if (toggleFold(target)) return;
    if (more) {
      this.redrawCard(/** @type {Element} */ (more.closest(".rollout")), { whole: true });
      return;
    }
    if (this.streams || String(getSelection()) || !this.data.rollouts[g].steps) return; // selecting text is not pinning
    const token = /** @type {HTMLElement | null} */ (target.closest(".text i"));
    const step = /** @type {HTMLElement | null} */ (target.closest(".step"));
    if (token) this.pin(g, Number(token.dataset.t));
    else if (step) this.pinStep(step);
  }

  /** @param {HTMLElement} node Pins the last token of a step. */
  pinStep(node) {
    this.pinStepOf(Number(rolloutOf(node)), Number(node.dataset.k));
  }

  /** @param {string} target of a link in a sentence @returns {(() => void) | null} What shows it, if it is drawn. */
  follow(target) {
    const [kind, which] = target.split(":");
    if (kind === "filter") return this.finder.button(which) ? () => this.finder.choose(which) : null;
    const [cell] = this.cellsOf(target);
    return cell ? () => this.pinStepOf(this.shownFor(cell.g), cell.k) : null;
  }

  /** @param {string} target of a link @returns {{ g: number, k: number }[]} The steps that it is about. */
  cellsOf(target) {
    const [kind, which] = target.split(":");
    const named = which.split(",");
    const isAbout = {
      filter: (/** @type {number} */ g) => fits(this.data.rollouts[g], { filter: which, text: "" }),
      steps: (/** @type {number} */ g, /** @type {number} */ k) => Boolean(this.data.rollouts[g].wrong?.[k]),
      rollout: (/** @type {number} */ g) => named.includes(`${g + 1}`),
      step: (/** @type {number} */ g, /** @type {number} */ k) => named.includes(`${g + 1}.${k + 1}`),
    }[kind];
    return this.data.rollouts.flatMap(({ steps = [] }, g) =>
      steps.flatMap((_, k) => isAbout?.(g, k) ? [{ g, k }] : [])
    );
  }

  /** @param {number} g @param {number} k @param {{ uncover?: boolean }} [options] */
  pinStepOf(g, k, options) {
    const { steps } = this.data.rollouts[g];
    if (steps) this.pin(g, steps[k].last, options);
  }
}

/** @param {HTMLElement} root @param {ConstructorParameters<typeof Heatmap>[1]} [options] */
export const mount = (root, options) => new Heatmap(root, options);

// A token as an element whose text is the token's own, cut where a step or a match begins inside it.
//
// The <pre> of a rollout has exactly the completion as its textContent: arrows for line ends, marks for invisible
// characters and the end-of-sequence sign are drawn by the style sheet.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.tokenElement) return; // a notebook holds one copy of this script per output
  const { el } = H;

  const TOKEN_CHARACTERS = 20000; // of one token; the rest is in the full text

  // Characters that would otherwise be invisible or would reorder their neighbours.
  const INVISIBLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
  const SPECIAL = new RegExp(`[\\n\\r\\t\\ufffd]|[\\ud800-\\udfff]|${INVISIBLE.source}`);
  const FOREIGN = /[^\u0000-\u02ff]/; // may run from right to left: it is kept from reordering its neighbours
  const PAIR = /^[\ud800-\udbff][\udc00-\udfff]$/;

  // Fills in what follows from the payload: character offsets of tokens, and the step each token belongs to.
  function prepare(data) {
    for (const r of data.rollouts) {
      const n = r.texts.length;
      r.offsets = new Int32Array(n + 1);
      for (let t = 0; t < n; t++) r.offsets[t + 1] = r.offsets[t] + r.texts[t].length;
      r.stepOf = new Int32Array(n).fill(-1);
      r.steps?.forEach((step, k) => r.stepOf.fill(k, step.first, step.last + 1));
      if (r.twin) r.twin = { ...r, ...r.twin, why: r.twin.why, terms: r.twin.terms, twin: null };
    }
    return data;
  }

  // Characters of a token that get an element of their own: line ends, tabs, invisible ones.
  function appendText(parent, text) {
    if (text.length > TOKEN_CHARACTERS) {
      appendText(parent, text.slice(0, TOKEN_CHARACTERS));
      parent.append(el("u", { class: "cut", "data-mark": `… ${(text.length - TOKEN_CHARACTERS).toLocaleString("en")} more characters` }));
      return;
    }
    if (!SPECIAL.test(text)) {
      parent.append(text);
      return;
    }
    let plain = "";
    const flush = () => { if (plain) parent.append(plain); plain = ""; };
    for (const character of text) {
      if (character === "\n") { flush(); parent.append(el("u", { class: "nl" }, character)); }
      else if (character === "\t") { flush(); parent.append(el("u", { class: "tab" }, character)); }
      else if (character === "\ufffd") { flush(); parent.append(el("u", { class: "bad" }, character)); }
      else if (character === "\r" || INVISIBLE.test(character) || (/[\ud800-\udfff]/.test(character) && !PAIR.test(character))) {
        flush();
        const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        parent.append(el("u", { class: "hidden-character", "data-mark": `U+${code}` }, el("s", {}, character)));
      } else plain += character;
    }
    flush();
  }

  // A token, cut where a step begins or ends inside it and where a match of the pattern does.
  function tokenElement(r, t, cuts) {
    const flips = r.twin && r.advantages[t] * r.twin.advantages[t] < 0;
    const text = r.texts[t];
    const kinds = `${flips ? "flips " : ""}${FOREIGN.test(text) ? "foreign" : ""}`.trim();
    const node = document.createElement("i"); // there are thousands
    node.setAttribute("data-t", t);
    if (kinds) node.className = kinds;
    const last = t === r.texts.length - 1;
    if (last && r.finished) {
      node.dataset.mark = text || "end";
      node.classList.add("eos");
      return node;
    }
    if (!text) {
      node.classList.add("empty");
      return node;
    }
    const start = r.offsets[t];
    const end = r.offsets[t + 1];
    while (cuts.next < cuts.length && cuts[cuts.next].at <= start) cuts.apply(cuts[cuts.next++]);
    if (!(cuts.next < cuts.length && cuts[cuts.next].at < end) && (cuts.step === r.stepOf[t] || cuts.step < 0)) {
      if (cuts.inMatch) node.classList.add("match");
      appendText(node, text);
      return node;
    }
    let from = start;
    while (from < end) {
      const to = cuts.next < cuts.length ? Math.min(end, cuts[cuts.next].at) : end;
      if (to > from) {
        // Characters of a step that the token as a whole does not belong to are marked as straddling.
        const astray = cuts.step >= 0 && cuts.step !== r.stepOf[t];
        const part = text.slice(from - start, to - start);
        const name = `${cuts.inMatch ? "match " : ""}${astray ? "astray" : ""}`.trim();
        const opens = astray && r.steps[cuts.step].start === from ? cuts.step + 1 : null;
        if (name) appendText(node.appendChild(el("span", { class: name, "data-n": opens })), part);
        else appendText(node, part);
        if (astray) node.classList.add("straddles");
      }
      from = to;
      while (cuts.next < cuts.length && cuts[cuts.next].at <= from && from < end) cuts.apply(cuts[cuts.next++]);
    }
    return node;
  }

  // Places inside the text where something changes, in order, with the state walked so far.
  function cutsOf(r) {
    const cuts = [];
    r.steps?.forEach((step, k) => {
      cuts.push({ at: step.end, order: 0, step: -1 });
      cuts.push({ at: step.start, order: 1, step: k });
    });
    for (const [start, end] of r.matches ?? []) {
      if (end > start) cuts.push({ at: start, order: 1, match: true }, { at: end, order: 0, match: false });
    }
    cuts.sort((a, b) => a.at - b.at || a.order - b.order);
    cuts.next = 0;
    cuts.step = -1;
    cuts.inMatch = false;
    cuts.apply = (cut) => {
      if (cut.step !== undefined) cuts.step = cut.step;
      if (cut.match !== undefined) cuts.inMatch = cut.match;
    };
    return cuts;
  }

  Object.assign(H, { tokenElement, cutsOf, prepare, INVISIBLE, TOKEN_CHARACTERS });
})();

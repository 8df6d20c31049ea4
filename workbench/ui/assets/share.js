// Taking Inspect along: links, the browser tab's own copy of the controls, files, and code for a notebook.
//
// The tab's copy lives in sessionStorage, so that two tabs never restore each other's. Its value comes from the server
// (keeping.py) in parts: {"scoring", "link"} or {"sampling"}; "first" marks what the page opened with.
(() => {
  if (globalThis.WorkbenchShare) return;
  const { el, follow } = globalThis.WorkbenchPage;

  const KEPT = "workbench-inspect"; // also read by the page's load event
  const LINKED = ["task", "example", "saved", "preset", "regex", "kind", "scheme", "options", "compare", "compare-options"];
  const PLACE = ["rollout", "k", "t", "colour"]; // of the pin, and what tokens are coloured by
  let tab = ""; // how the workbench knows this tab
  let link = {}; // the address's parameters for what is on screen
  let drawing = null; // the heatmap on Inspect
  let changed = false; // whether the address speaks of Inspect yet
  let pinnedToken = null; // {g, t}, 0-based
  let writing = 0; // the timer of the next writeAddress

  // ── the tab's copy and the address ───────────────────────────────────────────────────────────────────────────

  function keep(handles) {
    follow(handles, (root, value) => {
      if (!value) return;
      if (value.tab) tab = value.tab;
      if (value.link) link = value.link;
      if (!value.first || value.restored) {
        remember(value);
        changed ||= Boolean(value.link) && !value.restored;
      }
      clearTimeout(writing); // what was typed is painted first
      writing = setTimeout(writeAddress, 60);
    });
  }

  function remember({ scoring, sampling }) {
    try {
      const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
      sessionStorage.setItem(KEPT, JSON.stringify({ ...kept, ...(scoring ? { scoring } : {}), ...(sampling ? { sampling } : {}) }));
    } catch { /* no storage, or a full one: the controls last until reload */ }
  }

  const onInspect = () => Boolean(document.querySelector("#view")?.offsetParent);

  function writeAddress() {
    if (!changed || !onInspect()) return;
    const url = new URL(location.href);
    const wanted = { ...link, ...place() };
    for (const name of [...LINKED, ...PLACE]) {
      if (wanted[name] !== undefined) url.searchParams.set(name, wanted[name]);
      else url.searchParams.delete(name);
    }
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  function address() {
    const url = new URL(location.pathname, location.origin);
    for (const [name, value] of Object.entries({ ...link, ...place() })) url.searchParams.set(name, value);
    return url.href;
  }

  // Where the drawing is looked at, as the address says it: rollout and step count from 1, and a token from 0, as in
  // the details. A step's last token is the step itself. Advantage is what everybody's drawing opens with.
  function place() {
    const found = {};
    if (drawing && drawing.colour !== "advantage") found.colour = drawing.colour;
    const r = pinnedToken && drawing?.data.rollouts[pinnedToken.g];
    if (!r) return found;
    found.rollout = pinnedToken.g + 1;
    const k = r.stepOf[pinnedToken.t];
    if (k >= 0) found.k = k + 1;
    if (r.steps?.[k]?.last !== pinnedToken.t) found.t = pinnedToken.t;
    return found;
  }

  // The first drawing is coloured and pinned as the address says; after that, the address follows the drawing.
  function shown(heatmap) {
    if (drawing === heatmap) return;
    drawing = heatmap;
    heatmap.onColour = moved;
    const asked = new URL(location.href).searchParams;
    if (asked.has("run")) return;
    heatmap.colourBy(asked.get("colour"));
    const count = (name) => (/^\d{1,9}$/.test(asked.get(name)) ? Number(asked.get(name)) : -1);
    const g = count("rollout") - 1;
    const r = heatmap.data.rollouts[g];
    const token = count("t");
    const t = r?.advantages && token in r.texts ? token : r?.steps?.[count("k") - 1]?.last;
    if (t === undefined) return;
    heatmap.pin(g, t);
    document.querySelector(`#heatmap .rollout[data-g="${g}"]`)?.scrollIntoView({ block: "center" });
  }

  function pinned(at) {
    pinnedToken = at;
    moved();
  }

  function moved() {
    changed = true;
    writeAddress();
  }

  // ── files ────────────────────────────────────────────────────────────────────────────────────────────────────

  function download(name, blob) {
    const url = URL.createObjectURL(blob);
    const anchor = el("a", { href: url, download: name, hidden: true });
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  }

  const FILES = [
    ["html", "HTML", "the heatmap as a page that stands alone"], ["png", "PNG", "a picture of the heatmap as it is drawn"],
    ["json", "JSON", "group, scores and credit"], ["steps", "CSV of steps", "one row a step"], ["tokens", "CSV of tokens", "one row a token"],
  ];

  function tools(handles) {
    const said = el("span", { class: "said", role: "status" });
    const say = (text) => { said.textContent = text; };
    const copyLink = el("button", { type: "button", id: "copy-link", title: "A link that opens this task, group, pattern, scheme, colours and pin", onclick: async () => {
      try {
        const saved = await handles.server.keep({ tab });
        if (saved) link = { ...link, saved };
        changed = true;
        writeAddress();
        say(await copy(address()) ? "Link copied." : "The browser refused the clipboard; copy the address bar.");
      } catch { say("The workbench did not answer; try again."); }
    } }, "Copy link");
    const files = FILES.map(([kind, label, title]) => el("button", { type: "button", id: `export-${kind}`, title, onclick: async () => {
      if (!drawing?.data) { say("There is no group to export yet."); return; }
      try {
        say("…");
        const file = await handles.server.export({ tab, kind: kind === "png" ? "name" : kind });
        if (!file) { say("There is no scored group to export yet."); return; }
        if (kind === "png") download(`${file.name}.png`, await picture(document.querySelector("#heatmap")));
        else download(file.name, new Blob([file.text], { type: file.type }));
        say(`${kind === "png" ? `${file.name}.png` : file.name} saved.`);
      } catch (error) { say(`No file was made: ${error.message ?? error}`); }
    } }, label));
    follow(handles, (root) => {
      if (!root.hasChildNodes()) root.append(copyLink, el("span", { class: "exports", role: "group", "aria-label": "Export" }, el("span", { class: "label" }, "Export"), ...files), said);
    });
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }

  // ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────

  const LARGEST_SIDE = 16384, LARGEST_AREA = 120e6; // pixels that browsers draw into one canvas
  const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

  // The element, laid out by the browser itself inside an SVG image; nothing is fetched for it.
  async function picture(source) {
    const { width, top } = source.getBoundingClientRect();
    const height = source.querySelector(".cards").getBoundingClientRect().bottom - top; // without what is pinned below
    const dark = document.body.classList.contains("dark");
    const [w, h] = [Math.ceil(width) + 32, Math.ceil(height) + 32];
    const scale = Math.min(2, LARGEST_SIDE / Math.max(w, h), Math.sqrt(LARGEST_AREA / (w * h)));
    const clone = source.cloneNode(true);
    clone.querySelectorAll(".details, .tip, [hidden]").forEach((node) => node.remove());
    clone.querySelectorAll("select").forEach((select) => {
      const from = source.querySelector(`select[aria-label="${select.getAttribute("aria-label")}"]`);
      select.replaceWith(el("b", {}, from?.selectedOptions[0]?.textContent ?? ""));
    });
    clone.querySelectorAll("label:has(input[type=checkbox])").forEach((node) => node.remove());
    clone.querySelectorAll("input").forEach((input) => input.replaceWith(source.querySelector(".range-end").value || input.placeholder));
    const walker = document.createTreeWalker(clone, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replace(NOT_XML, "\ufffd");
    clone.querySelectorAll("[data-mark]").forEach((node) => { node.dataset.mark = node.dataset.mark.replace(NOT_XML, "\ufffd"); });
    const rules = [...document.styleSheets].filter((sheet) => sheet.href?.includes("heatmap.css")).flatMap((sheet) => [...sheet.cssRules]);
    const style = el("style", {}, `${rules.map((rule) => rule.cssText).join("\n")}\n.wh .rollout { content-visibility: visible; } .wh .legend { position: static; }`);
    const box = el("div", { class: dark ? "dark" : "", style: `padding: 16px; background: ${dark ? "#0e1013" : "#fff"}; width: ${Math.ceil(width)}px;` }, style, clone);
    const holder = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of Object.entries({ width: w, height: h, viewBox: `0 0 ${w} ${h}` })) holder.setAttribute(name, value);
    const foreign = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
    foreign.setAttribute("width", "100%");
    foreign.setAttribute("height", "100%");
    foreign.append(box);
    holder.append(foreign);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(holder))}`;
    await image.decode();
    const canvas = el("canvas", { width: Math.floor(w * scale), height: Math.floor(h * scale) });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.drawImage(image, 0, 0);
    const blob = await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
    if (!blob) throw new Error("the group is too large for a picture; take the HTML file");
    return blob;
  }

  // ── notebook code ────────────────────────────────────────────────────────────────────────────────────────────

  // {"code", "number"}: shown, and copied at once; {"problem"} where there is none.
  function code(handles) {
    follow(handles, async (root, value) => {
      if (!value) { root.replaceChildren(); return; }
      if (value.problem) { root.replaceChildren(el("p", { class: "error", role: "alert" }, value.problem)); return; }
      const said = el("span", { class: "said", role: "status" });
      const tell = async () => { said.textContent = await copy(value.code) ? "Copied." : "The browser refused the clipboard; select the code and copy it."; };
      const pre = el("pre", { tabindex: 0, role: "region", "aria-label": "Notebook code" }, value.code);
      root.replaceChildren(el("div", { class: "code-box" },
        el("header", {}, el("b", {}, "Notebook code"), said, el("button", { type: "button", onclick: tell }, "Copy"), el("button", { type: "button", onclick: () => root.replaceChildren() }, "Close")), pre));
      await tell();
    });
  }

  globalThis.WorkbenchShare = { keep, tools, code, shown, pinned, copy, get tab() { return tab; }, get pinnedToken() { return pinnedToken; } };
})();

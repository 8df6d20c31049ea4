// A file dropped anywhere on the page goes into the box that opens people's own data.

const BOX = "#door input[type=file]";

/** Takes files that are dropped on the page, and says while one is held over it that it will. */
export function takeDrops() {
  let held = 0; // each element that is entered is left again
  const hold = (/** @type {number} */ count) => {
    held = Math.max(0, count);
    document.body.classList.toggle("dropping", held > 0);
  };
  const onFiles = (/** @type {string} */ name, /** @type {(event: DragEvent) => void} */ act) =>
    document.addEventListener(name, (any) => {
      const event = /** @type {DragEvent} */ (any);
      if (!event.dataTransfer?.types.includes("Files") || !document.querySelector(BOX)) return;
      event.preventDefault(); // the browser would leave the page for the file
      event.stopPropagation();
      act(event);
    }, { capture: true });
  onFiles("dragenter", () => hold(held + 1));
  onFiles("dragleave", () => hold(held - 1));
  onFiles("dragover", () => {});
  onFiles("drop", ({ dataTransfer }) => {
    hold(0);
    const box = /** @type {HTMLInputElement | null} */ (document.querySelector(BOX));
    const file = dataTransfer?.files[0];
    if (!box || !file) return;
    document.getElementById("inspect-tab-button")?.click();
    const one = new DataTransfer();
    one.items.add(file);
    box.files = one.files;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

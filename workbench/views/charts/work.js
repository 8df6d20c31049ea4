// Work done a few milliseconds a turn, so that the page never stands still for it.

const BUDGET = 4; // milliseconds of a turn
/** @type {(() => unknown)[]} */
const jobs = [];
let scheduled = false;

/** @param {() => unknown} job */
export function later(job) {
  jobs.push(job);
  if (!scheduled) schedule();
}

function schedule() {
  scheduled = true;
  setTimeout(work); // not an animation frame: those stop in a tab that is not looked at, and a log is long
}

function work() {
  const until = performance.now() + BUDGET;
  try {
    while (jobs.length && performance.now() < until) jobs.shift()?.();
  } finally { // the jobs after one that failed are done all the same
    scheduled = false;
    if (jobs.length) schedule();
  }
}

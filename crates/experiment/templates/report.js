// SPDX-License-Identifier: Apache-2.0 OR MIT
// Zooms timelines: the pictures are complete without this.
"use strict";
for (const figure of document.querySelectorAll(".timeline")) {
  const plots = [...figure.querySelectorAll(".plot")];
  const area = figure.querySelector(".strips");
  const output = figure.querySelector("output");
  if (!plots.length) continue;
  const width = Number(plots[0].getAttribute("width"));
  const ms = Math.max(...plots.map((plot) => Number(plot.dataset.ns))) / 1e6;
  let from = 0, scale = 1;
  const step = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  };
  const show = (value) => String(+value.toFixed(3));
  function draw() {
    scale = Math.min(Math.max(scale, 1), 2000);
    from = Math.min(Math.max(from, 0), ms - ms / scale);
    const every = step(ms / scale / 9);
    let marks = "";
    for (let n = Math.ceil(from / every - 1e-9); n * every <= from + ms / scale + 1e-9; n++) {
      const x = ((n * every - from) / ms) * scale * width;
      const anchor = x < 20 ? "start" : x > width - 20 ? "end" : "middle";
      marks += `<path class="grid" d="M${x.toFixed(2)} Yv5"/><text class="tick" x="${x.toFixed(2)}" y="TY" text-anchor="${anchor}">${show(n * every)} ms</text>`;
    }
    for (const plot of plots) {
      const share = (ms * 1e6) / Number(plot.dataset.ns);
      const shift = (-from / ms) * scale * width;
      plot.querySelector(".zoom").setAttribute("transform", `translate(${shift} 0) scale(${scale / share} 1)`);
      for (const move of plot.querySelectorAll(".move")) {
        move.setAttribute("transform", `translate(${(Number(move.dataset.x) / share) * scale + shift} 0)`);
      }
      const axis = plot.querySelector(".axis"), y = Number(axis.dataset.y);
      axis.innerHTML = marks.replaceAll("TY", String(y + 17)).replaceAll("Y", String(y));
    }
    figure.classList.toggle("zoomed", scale > 1);
    output.textContent = `${show(+from.toFixed(2))} to ${show(+(from + ms / scale).toFixed(2))} ms`;
  }
  function zoom(factor, at = 0.5) {
    const there = from + (at * ms) / scale;
    scale = Math.min(Math.max(scale * factor, 1), 2000);
    from = there - (at * ms) / scale;
    draw();
  }
  const pan = (part) => { from += (part * ms) / scale; draw(); };
  const all = () => { scale = 1; from = 0; draw(); };
  const actions = { in: () => zoom(2), out: () => zoom(0.5), left: () => pan(-0.25), right: () => pan(0.25), all };
  figure.querySelector(".tools").addEventListener("click", (event) => actions[event.target.dataset.do]?.());
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "all", 0: "all" };
  area.addEventListener("keydown", (event) => {
    const action = actions[keys[event.key]];
    if (action && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); action(); }
  });
  const place = (event) => {
    const box = plots[0].getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  area.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, place(event));
  }, { passive: false });
  let last = null;
  area.addEventListener("pointerdown", (event) => {
    if (scale > 1 && event.button === 0 && event.target.closest(".plot, .on")) { last = place(event); area.setPointerCapture(event.pointerId); }
  });
  area.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const now = place(event);
    pan(last - now);
    last = now;
  });
  for (const end of ["pointerup", "pointercancel"]) area.addEventListener(end, () => { last = null; });
  figure.querySelector(".tools").hidden = false;
  figure.classList.add("live");
  draw();
}
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });

"use strict";
{
  const zone = document.body.dataset.zone;
  const phone = matchMedia("(max-width: 760px)");
  const localTime = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone, weekday: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
  });

  // A figure names colours by role; the style sheet knows their values in the present scheme.
  const parse = (text) => {
    const style = getComputedStyle(document.documentElement);
    return JSON.parse(text, (key, value) =>
      typeof value === "string" && value.startsWith("var(--") ? style.getPropertyValue(value.slice(4, -1)).trim() : value);
  };

  const addLocalTimes = (trace) => {
    if (trace.meta !== "zoned" || zone === "UTC") return;
    const first = Date.parse(trace.x0.replace(" ", "T") + "Z");
    trace.customdata = trace.y.map((_, i) => localTime.format(first + i * trace.dx));
    trace.hovertemplate += ", %{customdata}";
  };

  const draw = (plot) => {
    const { data, layout } = parse(plot.dataset.spec);
    data.forEach(addLocalTimes);
    layout.dragmode = phone.matches ? false : "zoom";
    Plotly.react(plot, data, layout, { responsive: true, displayModeBar: false });
  };

  const plots = [...document.querySelectorAll(".plot")];
  for (const plot of plots) {
    plot.dataset.spec = plot.textContent;
    plot.textContent = "";
  }
  const drawAll = () => plots.forEach(draw);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  phone.addEventListener("change", drawAll);

  for (const banner of document.querySelectorAll("[data-valid-until]")) {
    banner.hidden = Date.now() < Date.parse(banner.dataset.validUntil);
  }
}

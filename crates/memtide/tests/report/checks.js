// What is wrong with a report as it is shown now, as a list of sentences. Run by tests/report.rs.
(async (width) => {
  const problems = [];
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const check = (holds, ...what) => { if (!holds) problems.push(what.join(" ")); };
  const name = (element) => `${element.tagName}.${element.className.baseVal ?? element.className}`;

  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  await frames();
  // A page that is wider than a telephone is shown smaller there.
  check(innerWidth === width && visualViewport.scale === 1, "the view is", innerWidth, visualViewport.scale);
  const wide = document.documentElement.scrollWidth;
  check(wide <= width, "the page is", wide, "pixels wide, the window", width);

  // Text: of readable size, in contrast to what is behind it, and within the window.
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  check(!document.querySelector("svg text"), "text in a drawing shrinks with it");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Map();
  let texts = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, svg") || !element.checkVisibility()) continue;
    texts++;
    if (!element.closest(".scroll")) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      check(box.left >= -1 && box.right <= innerWidth + 1, "cut:", node.data, box.left, box.right);
    }
    const key = `${name(element)} ${name(element.parentElement)}`;
    if (seen.has(key)) continue;
    const style = getComputedStyle(element);
    seen.set(key, style);
    check(parseFloat(style.fontSize) >= 12, "too small:", style.fontSize, key, node.data);
    const ratio = contrast(style.color, behind(element));
    check(ratio >= 4.5, "too little contrast:", ratio.toFixed(2), key, node.data);
  }
  check(texts > 20, "hardly any text:", texts);

  // Tables: those that are wider than their box say so, the others do not, and none is cut elsewhere.
  for (const box of document.querySelectorAll(".scroll")) {
    const over = box.scrollWidth > box.clientWidth + 1;
    const hint = box.parentElement.querySelector(".hint").checkVisibility();
    const label = box.getAttribute("aria-label");
    check(over === hint, "a table is", over ? "" : "not", "cut, and its hint says otherwise:", label);
    check(!over || box.tabIndex === 0, "no key scrolls", label);
    check(!over || getComputedStyle(box).overflowX === "auto", "nothing scrolls", label);
    const edge = box.getBoundingClientRect();
    check(edge.right <= innerWidth, "a table leaves the window:", label);
  }
  for (const table of document.querySelectorAll("table")) {
    check(table.closest(".scroll"), "a table without a box:", table.textContent.slice(0, 40));
  }

  // Charts: named, told in words, and within reach of keys. Lines and bars stand out from their card.
  for (const chart of document.querySelectorAll(".chart")) {
    check(chart.tabIndex === 0 && chart.getAttribute("aria-label"), "no key reaches", name(chart));
    for (const drawing of chart.querySelectorAll("svg")) {
      const part = (tag) => drawing.querySelector(tag)?.textContent.trim();
      check(drawing.getAttribute("role") === "img" && part("title") && part("desc"), "untold:", name(chart));
    }
    for (const swatch of chart.querySelectorAll(".line, .bar rect")) {
      const style = getComputedStyle(swatch);
      const colour = style.fill === "none" ? style.stroke : style.fill;
      const ratio = contrast(colour, behind(chart));
      check(ratio >= 3, "a pale mark:", ratio.toFixed(2), colour);
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  check(new Set(ids).size === ids.length, "an id twice:", ids.join(" "));
  for (const link of document.querySelectorAll("a")) {
    const to = link.getAttribute("href");
    check(to.startsWith("#") && document.getElementById(to.slice(1)), "a link to nowhere:", to);
  }
  check(document.title && document.documentElement.lang === "en", "no title or language");
  return problems;
})

// The page of a study: theme, contents, pictures that enlarge, links that open what they lead to, and the views.
const copy = async (text, element, said) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no permission: mark the text and ask the browser
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
  }
  said.textContent = "Copied";
  setTimeout(() => (said.textContent = ""), 2000);
};

(() => {
  const root = document.documentElement, at = (id) => document.getElementById(id);
  const data = JSON.parse(at("data").textContent);
  root.classList.add("live");

  // ---- light and dark

  const STORE = "fednoise-theme", THEMES = ["auto", "light", "dark"], theme = at("theme");
  const remember = (value) => {
    try {
      return value === undefined ? localStorage.getItem(STORE) : localStorage.setItem(STORE, value);
    } catch {
      return null; // a browser that keeps nothing for files
    }
  };
  const paint = (name) => {
    name === "auto" ? root.removeAttribute("data-theme") : root.setAttribute("data-theme", name);
    theme.textContent = `Theme: ${name}`;
    theme.value = name;
  };
  paint(THEMES.includes(remember()) ? remember() : "auto");
  theme.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
    paint(next);
    remember(next);
  });

  // ---- contents: open beside the page, closed where there is no room beside

  const contents = at("contents"), narrow = matchMedia("(max-width: 75rem)");
  const fold = () => (contents.open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", (event) => event.target.closest("a") && narrow.matches && (contents.open = false));

  for (const table of document.querySelectorAll("section.block table")) {
    if (!table.querySelector("tr[class]")) makeSortable(table); // groups and ceilings keep their place
  }

  // ---- a view: one run or one setting over the whole window

  const view = at("view"), inside = at("view-content"), openRun = runView(data), shownRuns = runTable(data);
  let lent = null, cameFrom = null;

  const cards = [...document.querySelectorAll("details.card")];
  const cardView = (card) => ({ kicker: "Setting", title: card.querySelector(".name").textContent, content: () => {
    lent = { node: card.querySelector(".full"), home: card };
    return [lent.node];
  } });
  const giveBack = () => {
    if (lent) lent.home.append(lent.node);
    lent = null;
  };

  let chosen = null; // what was clicked last, or Enter pressed on
  addEventListener("click", (event) => (chosen = event.target.closest("a, summary, button")), true);

  function order(hash) {
    return hash.startsWith("#run-") ? shownRuns() : cards.map((card) => `#${card.id}`);
  }

  function show(hash, found) {
    giveBack();
    at("view-kicker").textContent = found.kicker;
    at("view-title").textContent = found.title;
    inside.replaceChildren();
    if (!view.open) {
      const at = document.activeElement;
      cameFrom = at && at !== document.body ? at : chosen; // following a link to a place takes the focus away
      view.showModal();
    }
    inside.replaceChildren(...found.content());
    view.scrollTop = 0;
    const all = order(hash), place = all.indexOf(hash);
    for (const [id, step] of [["view-before", -1], ["view-next", 1]]) {
      at(id).disabled = place < 0 || !all[place + step];
      at(id).value = all[place + step] || "";
    }
    at("view-title").focus();
  }

  for (const id of ["view-before", "view-next"]) at(id).addEventListener("click", () => location.replace(at(id).value));
  at("view-close").addEventListener("click", () => view.close());
  view.addEventListener("close", () => {
    giveBack();
    inside.replaceChildren();
    if (opens(location.hash)) history.replaceState(null, "", location.pathname + location.search);
    const back = cameFrom && cameFrom !== document.body && cameFrom.isConnected ? cameFrom : null;
    back && back.focus();
  });

  const cardOf = (hash) => cards.find((card) => `#${card.id}` === hash);
  const runOf = (hash) => (/^#run-\d+$/.test(hash) && data.runs[+hash.slice(5)] ? +hash.slice(5) : null);
  const opens = (hash) => runOf(hash) !== null || Boolean(cardOf(hash));

  // ---- links: what is closed around their target opens; a run or a setting opens as a view

  function arrive() {
    const hash = decodeURIComponent(location.hash), card = cardOf(hash), run = runOf(hash);
    if (run !== null) return show(hash, openRun(run));
    if (card) return show(hash, cardView(card));
    if (view.open) view.close();
    const target = hash.length > 1 && at(hash.slice(1));
    if (!target) return;
    for (let outer = target.closest("details"); outer; outer = outer.parentElement.closest("details")) outer.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", arrive);
  for (const card of cards)
    card.querySelector("summary").addEventListener("click", (event) => {
      event.preventDefault();
      location.hash = card.id;
    });

  // ---- pictures enlarge by click, touch and Enter

  const large = at("large"), picture = at("large-picture");
  for (const image of document.querySelectorAll("figure img")) {
    const button = make("button", { type: "button", class: "picture", "aria-label": `Enlarge: ${image.dataset.title}` });
    image.replaceWith(button);
    button.append(image);
    button.addEventListener("click", () => {
      picture.src = image.src;
      picture.alt = image.alt;
      const own = +image.getAttribute("width"), room = innerWidth - 48, least = 1.3 * image.width;
      picture.width = room < least ? Math.max(own, 2 * image.width) : Math.max(least, Math.min(2 * own, room)); // on a phone it scrolls
      at("large-title").textContent = image.dataset.title;
      large.showModal();
      picture.parentElement.scrollTo(0, 0);
    });
  }
  at("large-close").addEventListener("click", () => large.close());
  large.addEventListener("click", (event) => event.target === large && large.close());
  large.addEventListener("close", () => picture.removeAttribute("src"));

  // ---- the section of curves, and links to a setting in it

  const showSetting = curves(data);
  for (const link of document.querySelectorAll("a[data-curves]"))
    link.addEventListener("click", () => showSetting(+link.dataset.curves));
  arrive();
})();

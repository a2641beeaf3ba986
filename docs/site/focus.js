// wide tables and code can be scrolled by keyboard, and each button to copy code has a name of its own
new MutationObserver(() => {
  for (const part of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) part.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((nav, number) => nav.setAttribute("aria-label", `code ${number + 1}`));
}).observe(document, {childList: true, subtree: true});

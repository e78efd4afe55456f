// What scrolls sideways can be reached and scrolled by keyboard.
document$.subscribe(() => {
  for (const item of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .md-sidebar__scrollwrap")) {
    item.tabIndex = 0;
  }
});

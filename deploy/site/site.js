// The buttons that copy code are in landmarks, which need names of their own.
let codes = 0;
new MutationObserver(() => {
  for (const nav of document.querySelectorAll("nav:not([aria-label])")) nav.ariaLabel = `Code ${++codes}`;
}).observe(document.documentElement, { childList: true, subtree: true });

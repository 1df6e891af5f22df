"use strict";

// What the theme leaves to those who listen to a page or have no mouse.
document.addEventListener("DOMContentLoaded", () => {
  for (const wide of document.querySelectorAll("pre, .table-wrapper, div.math")) {
    if (wide.scrollWidth > wide.clientWidth) {
      wide.tabIndex = 0; // it scrolls sideways: the arrow keys move it
    }
  }
  for (const corner of document.querySelectorAll("th")) {
    if (!corner.textContent.trim()) {
      corner.replaceWith(document.createElement("td")); // it is the head of nothing
    }
  }
  for (const caption of document.querySelectorAll("[role=heading]:not([aria-level])")) {
    caption.ariaLevel = "2";
  }
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "This page");
});

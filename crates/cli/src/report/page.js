// Tooltips of marks, and copying of commands. No characters that XML would misread.
(function () {
  "use strict";
  var tip = document.getElementById("tip");
  function hide() { tip.hidden = true; }
  document.addEventListener("pointermove", function (event) {
    var mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!mark) { hide(); return; }
    tip.textContent = mark.getAttribute("data-tip");
    tip.hidden = false;
    var box = tip.getBoundingClientRect();
    var right = document.documentElement.clientWidth - box.width - 8;
    var above = event.clientY - box.height - 14;
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, right)) + "px";
    tip.style.top = (8 > above ? event.clientY + 18 : above) + "px";
  });
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("click", function (event) {
    var button = event.target.closest ? event.target.closest("button[data-copy]") : null;
    if (!button) { return; }
    var block = button.parentNode.querySelector("pre");
    function say(word) {
      button.textContent = word;
      setTimeout(function () { button.textContent = "copy"; }, 1500);
    }
    function select() {
      // Pages opened from a file may not be allowed to copy: then the text is selected at least.
      var range = document.createRange();
      range.selectNodeContents(block);
      var selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      say(document.execCommand("copy") ? "copied" : "selected");
    }
    if (navigator.clipboard) {
      navigator.clipboard.writeText(block.textContent).then(function () { say("copied"); }, select);
    } else {
      select();
    }
  });
})();

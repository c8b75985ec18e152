// Script of the report of `odradek judge --html`: a cell of the matrix opens the verdict on one client, with its proof.
const verdicts = JSON.parse(document.getElementById("verdicts").textContent);
const dialog = document.querySelector("dialog");

function line(tag, text, into) {
  const one = document.createElement(tag);
  one.textContent = text;
  into.append(one);
  return one;
}

/** @type {NodeListOf<HTMLButtonElement>} */
const cells = document.querySelectorAll("button[data-at]");
for (const button of cells) {
  button.addEventListener("click", () => {
    const [client, rule] = button.dataset.at.split("/").map(Number);
    const verdict = verdicts[client].verdicts[rule];
    const body = dialog.querySelector("div");
    body.replaceChildren();
    line("h2", `${verdict.rule}: ${verdict.text}`, body);
    line(
      "p",
      `${verdicts[client].title} - ${verdict.verdict}: kept ${verdict.kept} times, broken ${verdict.broken} ` +
        `times - level ${verdict.level} - ${verdict.clause}`,
      body,
    );
    if (verdict.why) line("strong", verdict.why, body);
    if (verdict.needs) line("p", `Traffic alone does not decide it: it needs ${verdict.needs}.`, body);
    else if (!verdict.kept && !verdict.broken) line("p", `It takes ${verdict.precondition}.`, body);
    for (const exchange of verdict.proof) {
      const one = document.createElement("details");
      line(
        "summary",
        `${exchange.received_ms} ms: ${exchange.api} v${exchange.version} on connection ` +
          `${exchange.connection}, ${exchange.fate}`,
        one,
      );
      line("pre", JSON.stringify(exchange, null, 2), one);
      one.open = exchange === verdict.proof.at(-1);
      body.append(one);
    }
    dialog.showModal();
  });
}
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

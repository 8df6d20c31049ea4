// Lint rules of our own: no function is longer than LONGEST lines.

const LONGEST = 80;

function check(context) {
  return (node) => {
    const lines = context.sourceCode.getText(node).split("\n").length;
    if (lines <= LONGEST) return;
    context.report({ node, message: `This function has ${lines} lines; ${LONGEST} are the most: split it.` });
  };
}

export default {
  name: "workbench",
  rules: {
    "function-length": {
      create(context) {
        const visit = check(context);
        return { FunctionDeclaration: visit, FunctionExpression: visit, ArrowFunctionExpression: visit };
      },
    },
  },
};

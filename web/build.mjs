// Builds the page's script and style into the Python package; `--check` only compares.
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const page = fileURLToPath(new URL("../src/boundby/report/page/", import.meta.url));

const built = await esbuild.build({
  absWorkingDir: here,
  entryPoints: { bundle: "src/main.ts" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2021",
  charset: "utf8",
  legalComments: "none", // they stand in NOTICES.txt, which every page carries
  define: { "process.env.NODE_ENV": '"production"' },
  outdir: "out",
  write: false,
  logLevel: "warning",
});

const parts = ["echarts", "zrender", "tslib"];
const notices = await Promise.all(
  parts.map(async (name) => {
    const folder = `${here}node_modules/${name}/`;
    const { version, license } = JSON.parse(await readFile(`${folder}package.json`, "utf8"));
    const files = name === "echarts" ? ["NOTICE", "LICENSE", "licenses/LICENSE-d3"] : ["LICENSE"];
    const file = name === "tslib" ? ["LICENSE.txt"] : files;
    const texts = await Promise.all(file.map((path) => readFile(folder + path, "utf8")));
    return `${name} ${version} (${license})\n\n${texts.map((text) => text.trim()).join("\n\n")}\n`;
  }),
);

const wanted = new Map(
  built.outputFiles.map((file) => [file.path.split(/[\\/]/).pop(), file.text]),
);
wanted.set("NOTICES.txt", `${notices.join(`\n${"-".repeat(80)}\n\n`)}`.replaceAll("\r\n", "\n"));

let stale = 0;
for (const [name, text] of wanted) {
  if (/<\/(script|style)/i.test(name === "NOTICES.txt" ? "" : text)) {
    throw new Error(`${name} would end the element it stands in`);
  }
  if (process.argv.includes("--check")) {
    const committed = await readFile(page + name, "utf8").catch(() => "");
    if (committed !== text) {
      console.error(`${name} is not what web/ builds: make web`);
      stale += 1;
    }
  } else {
    await writeFile(page + name, text);
    console.log(`${name} ${(text.length / 1000).toFixed(0)} kB`);
  }
}
process.exit(stale ? 1 : 0);

// Loaded before the local GitHub server, which listens on every address unless it is told otherwise,
// and which would outlive whoever started it: it ends when its standard input does.
const { Server } = require("node:net");

const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
  const host = typeof port === "number" && rest[0] === undefined;
  return host ? listen.call(this, port, "127.0.0.1", ...rest.slice(1)) : listen.call(this, port, ...rest);
};

process.stdin.on("end", () => process.exit(0)).on("error", () => process.exit(0)).resume();

// Loaded before the local GitHub server, which listens on every address unless it is told otherwise.
const { Server } = require("node:net");

const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
  const host = typeof port === "number" && rest[0] === undefined;
  return host ? listen.call(this, port, "127.0.0.1", ...rest.slice(1)) : listen.call(this, port, ...rest);
};

// Mephisto's router (router.js) with what it lacks for a laptop: it listens on one address, does
// not outlive the process that started it, and serves none of the computer's files.
"use strict";

const http = require("http");

const host = process.env.PERSONA_RATING_HOST;

// Mephisto's router would save uploads to /tmp and serve any file by /download_file/..%2f…
const REFUSED = /^\/+(download_file|submit_metadata)(\/|$)/i;

// What comes while Mephisto is not there would wait, some of it for ever.
let isServing = false;

function fault(request) {
  const type = request.headers["content-type"] || "";
  if (REFUSED.test(request.url.split("?")[0]) || /multipart/i.test(type)) return 404;
  return request.method === "POST" && !isServing ? 503 : null;
}

// Only Mephisto itself opens a web socket. Whoever else could would receive all answers.
function isMephisto(request) {
  const isLocal = ["127.0.0.1", "::1", "::ffff:127.0.0.1", host].includes(
    request.socket.remoteAddress,
  );
  return request.headers.origin === undefined && (isLocal || !host);
}

const createServer = http.createServer;
http.createServer = (app) => {
  const server = createServer((request, response) => {
    const code = fault(request);
    if (code === null) return app(request, response);
    response.writeHead(code);
    response.end();
  });
  const emit = server.emit;
  server.emit = function (event, request, socket) {
    if (event !== "upgrade" || isMephisto(request)) return emit.apply(this, arguments);
    socket.destroy();
    return true;
  };
  return server;
};

// Mephisto connects before it has made its tasks, and asks for statuses as soon as it can serve.
const { prototype, Server } = require("ws");
const on = Server.prototype.on;
Server.prototype.on = function (event, listener) {
  if (event === "connection") {
    on.call(this, event, (socket) => {
      socket.on("message", (text) => {
        if (String(text).includes('"request_statuses"')) isServing = true;
      });
      socket.on("close", () => (isServing = false));
    });
  }
  return on.call(this, event, listener);
};

// A packet without these makes Mephisto close the connection, and what others send is lost.
function isWellFormed(packet) {
  return typeof packet.subject_id === "string" && packet.data !== undefined;
}

// Newer versions of node report success as null. The router only knows undefined, and would send
// each message a second time.
const send = prototype.send;
prototype.send = function (data, callback) {
  if (!isWellFormed(JSON.parse(data))) return;
  return send.call(this, data, (error) => callback && callback(error || undefined));
};

if (host) {
  const listen = http.Server.prototype.listen;
  http.Server.prototype.listen = function (port, callback) {
    return listen.call(this, port, host, callback);
  };
  // The parent holds the other end of our standard input: it closes when the parent is gone, even
  // if that was killed.
  process.stdin.resume();
  process.stdin.on("end", () => process.exit(0));
  process.stdin.on("error", () => process.exit(0));
}

require("./router.js");

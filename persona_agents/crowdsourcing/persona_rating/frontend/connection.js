// How the page talks to Mephisto's router: three requests, each answered in JSON.
"use strict";

const Server = (() => {
  const preset = getAgentRegistration();
  const isPilot = preset.provider_type === "mock";
  let agentId = null;

  const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

  async function post(path, body) {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, client_timestamp: Date.now() / 1000 }),
      signal: AbortSignal.timeout(30000), // the router waits for ever if Mephisto is gone
    });
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    return response.json();
  }

  // In a pilot a registration stands for one item. It is remembered, so that loading the page
  // again shows the same item; a crowd platform has one registration for each of its tasks.
  const stored = `registration of ${preset.worker_name}`;
  function registration() {
    if (!isPilot) return preset;
    let id = localStorage.getItem(stored);
    if (!id) {
      const random = crypto.getRandomValues(new Uint32Array(3));
      id = Array.from(random, (n) => n.toString(36)).join("");
      localStorage.setItem(stored, id);
    }
    return {
      ...preset,
      assignment_id: id,
      agent_registration_id: `${id}-${preset.worker_name}`,
    };
  }

  async function ask() {
    const packet = await post("request_agent", { provider_data: registration() });
    agentId = packet.data.agent_id;
    return packet.data;
  }

  return {
    isPilot,
    wait,
    worker: preset.worker_name,
    isPreview: preset.assignment_id === "ASSIGNMENT_ID_NOT_AVAILABLE",
    ask,
    forget: () => localStorage.removeItem(stored),
    async submitOnboarding(answers) {
      const packet = await post("submit_onboarding", {
        provider_data: {
          ...registration(),
          USED_AGENT_ID: agentId,
          onboarding_data: { answers },
        },
      });
      agentId = packet.data.agent_id;
      return packet.data;
    },
    // The router says "submitted" before anything is stored. Only the answer to a second request
    // tells whether it is: until then the answers are sent again. A server that was started anew
    // may hand out another item; its state, neither accepted nor refused, is returned then.
    async submit(data, onDelay) {
      for (let attempt = 0; ; attempt++) {
        try {
          await post("submit_task", { USED_AGENT_ID: agentId, final_data: data });
          const state = (await ask()).init_task_data;
          if (!state || !state.item) return {};
          if (state.accepted || state.refused || state.item.id !== data.item) return state;
        } catch (error) {
          console.warn(error);
        }
        onDelay();
        await wait(Math.min(1 + attempt, 10));
      }
    },
    // a crowd platform takes over from here; a pilot goes on with the next item
    leave() {
      if (isPilot) Server.forget();
      else handleSubmitToProvider({});
    },
  };
})();

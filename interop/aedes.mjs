// A broker of npm's aedes, which speaks MQTT 3.1.1 and no 5.0: aedes.mjs PORT. It prints what clients do, a line each.
import { createServer } from "node:net";
import { Aedes } from "aedes";

const broker = await Aedes.createBroker();
broker.on("clientReady", (client) => console.log(`connected ${client.id} version ${client.version}`));
broker.on("connectionError", (client, error) => console.log(`refused ${error.message}`));
broker.on("subscribe", (all, client) => console.log(`subscribed ${client.id} ${all.map((s) => s.topic).join(" ")}`));
createServer(broker.handle).listen(Number(process.argv[2]), "127.0.0.1", () => console.log("listens"));

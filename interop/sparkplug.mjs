// An edge node with one device: sparkplug-client against the broker of the first argument. It says "birth" for each of its births.
import sparkplug from 'sparkplug-client';

const client = sparkplug.newClient({
  serverUrl: process.argv[2], username: 'edge', password: 'edge-password', groupId: 'Plant 1', edgeNode: 'press', clientId: 'press',
  version: 'spBv1.0', publishDeath: true,
});
let temp = 20;

function births() {
  console.log('birth');
  client.publishNodeBirth({timestamp: Date.now(), metrics: [
    {name: 'Node Control/Rebirth', type: 'Boolean', value: false},
    {name: 'temp', type: 'Double', value: temp},
    {name: 'on', type: 'Boolean', value: true},
    {name: 'mode', type: 'String', value: 'auto'},
  ]});
  client.publishDeviceBirth('arm', {timestamp: Date.now(), metrics: [{name: 'speed', type: 'Float', value: 1.5}]});
}

client.on('birth', births); // once it is connected
client.on('ncmd', (p) => {
  if (p.metrics.some((m) => m.name === 'Node Control/Rebirth' && m.value === true)) births();
});
client.on('error', (e) => console.log('error', e.message));
setInterval(() => {
  temp += 0.5;
  client.publishNodeData({timestamp: Date.now(), metrics: [{name: 'temp', type: 'Double', value: temp}]});
  client.publishDeviceData('arm', {timestamp: Date.now(), metrics: [{name: 'speed', type: 'Float', value: temp}]});
}, 500);

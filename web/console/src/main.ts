import { mount } from 'svelte'
import App from './App.svelte'
import { session } from './api/session.svelte'
import './style/app.css'

const target = document.getElementById('app')
if (target) {
  target.replaceChildren()
  mount(App, { target })
  void session.start()
}

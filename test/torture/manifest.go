package torture

import "github.com/lathe-run/lathe/test/internal/world"

// manifest has one agent with every tool of the tests.
const manifest = `version: 1
agents:
  main:
    model: script
    system: You are tortured.
    tools: [look, slow, broken, pay, pay_slowly, save, save_slowly, deploy]
    limits: {parallel: 3, duration: 10m, steps: 12, calls: 40}
models:
  script: {provider: scripted, script: script.yaml}
`

// script answers by the prefix of the turn's id, beside what the world's script has.
const script = world.Script + `  - name: save
    match: {turn: save-}
    steps:
      - calls: [{name: save, arguments: {n: 1}}, {name: look, arguments: {n: 2}}]
      - calls: [{name: save_slowly, arguments: {n: 100}}]
      - text: saved
        delay: 30ms
  - name: wave
    match: {turn: wave-}
    steps:
      - calls:
          - {name: pay_slowly, arguments: {n: 40}}
          - {name: save_slowly, arguments: {n: 80}}
          - {name: pay_slowly, arguments: {n: 20}}
          - {name: save, arguments: {n: 4}}
          - {name: pay, arguments: {n: 5}}
          - {name: look, arguments: {n: 6}}
          - {name: save_slowly, arguments: {n: 10}}
      - text: all paid
  - name: late
    match: {turn: late-}
    steps:
      - calls: [{name: pay_slowly, arguments: {n: 700}}]
      - calls: [{name: slow, arguments: {n: 200}}]
      - text: late
        delay: 100ms
  - name: long
    match: {turn: long-}
    steps:
      - calls: [{name: slow, arguments: {n: 150}}]
      - calls: [{name: save, arguments: {n: 2}}]
        delay: 50ms
      - calls: [{name: slow, arguments: {n: 300}}, {name: slow, arguments: {n: 100}}]
      - calls: [{name: save_slowly, arguments: {n: 250}}]
        delay: 50ms
      - calls: [{name: slow, arguments: {n: 150}}]
      - text: long
  - name: stop
    match: {turn: stop-}
    steps:
      - calls: [{name: slow, arguments: {n: 200}}]
      - calls: [{name: pay_slowly, arguments: {n: 200}}, {name: save, arguments: {n: 2}}]
      - calls: [{name: slow, arguments: {n: 400}}]
      - text: not stopped
`

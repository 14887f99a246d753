package e2e_test

import "github.com/lathe-run/lathe/test/internal/world"

// manifest has one agent with every tool that is not gated.
const manifest = `version: 1
agents:
  main:
    model: script
    system: You are tested.
    tools: [look, slow, hold_read, broken, pay, hold, save, deploy, die_read, die_write]
    limits: {parallel: 2, duration: 1m, steps: 6, calls: 12}
models:
  script: {provider: scripted, script: script.yaml}
`

// script answers by the prefix of the turn's id, beside what the world's script has.
const script = world.Script + `  - name: save
    match: {turn: save-}
    steps:
      - calls: [{name: save, arguments: {n: 1}}, {name: look, arguments: {n: 2}}]
      - calls: [{name: save, arguments: {n: 3}}]
      - text: saved
  - name: many
    match: {turn: many-}
    steps:
      - calls:
          - {name: hold, arguments: {n: 1}}
          - {name: hold, arguments: {n: 1}}
          - {name: hold, arguments: {n: 1}}
          - {name: hold, arguments: {n: 1}}
          - {name: hold, arguments: {n: 1}}
          - {name: hold, arguments: {n: 1}}
      - text: all paid
  - name: hold
    match: {turn: hold-}
    steps:
      - calls: [{name: hold, arguments: {n: 1}}]
      - text: held
  - name: wait
    match: {turn: wait-}
    steps:
      - calls: [{name: hold_read, arguments: {n: 1}}]
      - calls: [{name: pay, arguments: {n: 2}}]
      - text: waited
  - name: calm
    match: {turn: calm-}
    steps:
      - calls: [{name: hold_read, arguments: {n: 1}}]
      - text: calm
  - name: die_read
    match: {turn: die_read-}
    steps:
      - calls: [{name: die_read, arguments: {n: 1}}]
  - name: die_write
    match: {turn: die_write-}
    steps:
      - calls: [{name: die_write, arguments: {n: 1}}]
  - name: slow
    match: {turn: slow-}
    steps:
      - calls: [{name: slow, arguments: {n: 30000}}]
      - text: slow
  - name: steps
    match: {turn: steps-}
    repeat: true
    steps:
      - calls: [{name: look, arguments: {n: 1}}]
  - name: stream
    match: {turn: stream-}
    steps:
      - calls: [{name: slow, arguments: {n: 20}}]
      - calls: [{name: pay, arguments: {n: 1}}]
      - text: streamed
`

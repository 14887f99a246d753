package world

// Script answers by the prefix of the turn's id. Scenarios may be added behind it.
const Script = `version: 1
scenarios:
  - name: read
    match: {turn: read-}
    steps:
      - calls: [{name: look, arguments: {n: 1}}]
      - calls: [{name: look, arguments: {n: 2}}, {name: look, arguments: {n: 3}}]
      - text: "read {{result.1}}"
  - name: write
    match: {turn: write-}
    steps:
      - calls: [{name: pay, arguments: {n: 1}}]
      - calls: [{name: save, arguments: {n: 2}}]
      - calls: [{name: deploy, arguments: {n: 3}}]
      - text: "written {{result.0}}"
  - name: both
    match: {turn: both-}
    steps:
      - calls: [{name: look, arguments: {n: 1}}, {name: pay, arguments: {n: 2}}, {name: save, arguments: {n: 3}}]
      - calls: [{name: look, arguments: {n: 4}}]
      - text: "both {{result.0}}"
  - name: hello
    match: {turn: hello-}
    steps: [{text: "hello {{user}}"}]
  - name: broken
    match: {turn: broken-}
    repeat: true
    steps:
      - calls: [{name: broken, arguments: {n: 1}}]
`

#!/bin/sh -e
# Prints the Services of a node with the endpoints that get new traffic: docs/writing-a-backend.md. kpng-callout runs it
# after each change, with the whole view on standard input, one JSON object per Service.
jq -r '"\(.Service.Namespace)/\(.Service.Name) \(.Service.IPs.ClusterIPs.V4 // []) -> \([.Endpoints[]? | .IPs.V4[]?])"'

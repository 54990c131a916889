-- Forgets an orchestrator: all of it or nothing. Refuses when it is back, or anybody still counts on it.
-- KEYS[1] orchestrator:{orchestrator}
-- KEYS[2] orchestrator:{orchestrator}:heartbeat
-- KEYS[3] orchestrator:{orchestrator}:retain
-- KEYS[4] orchestrator:{orchestrator}:capabilities:platformName
-- KEYS[5] orchestrator:{orchestrator}:capabilities:browsers
-- KEYS[6] orchestrator:{orchestrator}:slots
-- KEYS[7] orchestrator:{orchestrator}:slots.reclaimed
-- KEYS[8] orchestrator:{orchestrator}:slots.available
-- KEYS[9] orchestrator:{orchestrator}:backlog
-- KEYS[10] orchestrator:{orchestrator}:pending
-- KEYS[11] remuda:orchestrator:{orchestrator}:holders
-- KEYS[12] remuda:orchestrator:{orchestrator}:nodes
-- KEYS[13] remuda:orchestrator:{orchestrator}:machine
-- KEYS[14] remuda:orchestrator:{orchestrator}:drain
-- KEYS[15] remuda:orchestrator:{orchestrator}:obstacle
-- KEYS[16] orchestrators
-- ARGV[1] orchestrator
-- returns 1 if it is gone, else 0

-- Heartbeat, retain, backlog, pending, holders.
if redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[9], KEYS[10], KEYS[11]) > 0 then
  return 0
end
redis.call('UNLINK', KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[12], KEYS[13], KEYS[14],
  KEYS[15])
redis.call('SREM', KEYS[16], ARGV[1])
return 1

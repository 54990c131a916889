-- Takes a slot away for good, unless a session holds it.
-- KEYS[1] orchestrator:{orchestrator}:slots
-- KEYS[2] orchestrator:{orchestrator}:slots.available
-- KEYS[3] orchestrator:{orchestrator}:slots.reclaimed
-- ARGV[1] slot
-- returns 1 if it is gone, else 0

if redis.call('LREM', KEYS[2], 0, ARGV[1]) + redis.call('LREM', KEYS[3], 0, ARGV[1]) == 0 then
  return 0
end
redis.call('SREM', KEYS[1], ARGV[1])
return 1

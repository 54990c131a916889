-- Gives a session's slot back to the orchestrator that owns it. Harmless when done twice.
-- KEYS[1] session:{session}:slot
-- KEYS[2] session:{session}:orchestrator
-- ARGV[1] reclaimed, template by orchestrator
-- ARGV[2] holders, template by orchestrator
-- ARGV[3] bell, template by orchestrator: that of its reclaimed slots
-- returns the slot, or nil when the session holds none

local slot = redis.call('GETDEL', KEYS[1])
if not slot then
  return nil
end
-- A slot of other software does not name its owner. One that nobody is known to own is found by its owner as orphaned.
local orchestrator = slot:match('^(.*)/') or redis.call('LINDEX', KEYS[2], 0)
if not orchestrator then
  return slot
end
redis.call('HDEL', string.format(ARGV[2], orchestrator), slot)
redis.call('RPUSH', string.format(ARGV[1], orchestrator), slot)
redis.call('PUBLISH', string.format(ARGV[3], orchestrator), '')
return slot

-- Gives a session's slot back to the orchestrator that owns it. Harmless when done twice.
-- KEYS[1] session:{session}:slot
-- ARGV[1] reclaimed, template by orchestrator
-- ARGV[2] holders, template by orchestrator
-- ARGV[3] bell, template by orchestrator: that of its reclaimed slots
-- returns the slot, or nil when the session holds none

local slot = redis.call('GETDEL', KEYS[1])
if not slot then
  return nil
end
local orchestrator = slot:match('^(.*)/')
redis.call('HDEL', string.format(ARGV[2], orchestrator), slot)
redis.call('RPUSH', string.format(ARGV[1], orchestrator), slot)
redis.call('PUBLISH', string.format(ARGV[3], orchestrator), '')
return slot

-- Gives a queued session a slot of the candidate that has most to spare, and hands it to that orchestrator.
-- KEYS[1] session:{session}:status
-- KEYS[2] session:{session}:slot
-- KEYS[3] session:{session}:log
-- KEYS[4] metrics:sessions:log:{level}
-- KEYS[5..] orchestrator:{orchestrator}:slots.available
-- ARGV[1] session
-- ARGV[2] keep, about how many log entries stay
-- ARGV[3] backlog, template by orchestrator
-- ARGV[4] holders, template by orchestrator
-- ARGV[5] bell, template by orchestrator: that of its backlog
-- ARGV[6..] orchestrators, that of each list of slots
-- returns the slot, or nil when none is free or the session is no longer queued

if redis.call('HLEN', KEYS[1]) ~= 1 or redis.call('EXISTS', KEYS[2]) == 1 then
  return nil
end
local best, most, orchestrator = nil, 0, nil
for index = 5, #KEYS do
  local free = redis.call('LLEN', KEYS[index])
  if free > most then
    best, most, orchestrator = KEYS[index], free, ARGV[index + 1]
  end
end
if not best then
  return nil
end
local slot = redis.call('LPOP', best)
redis.call('SET', KEYS[2], slot)
redis.call('HSET', string.format(ARGV[4], orchestrator), slot, ARGV[1])
redis.call('LPUSH', string.format(ARGV[3], orchestrator), ARGV[1])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], '*',
  'component', 'manager', 'level', 'info', 'code', 'NALLOC', 'meta', cjson.encode({slot = slot}))
redis.call('HINCRBY', KEYS[4], 'NALLOC', 1)
redis.call('PUBLISH', string.format(ARGV[5], orchestrator), '')
return slot

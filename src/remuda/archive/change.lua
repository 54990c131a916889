-- Changes the settings or the ignores of a job that has not ended, and tells the pipeline that runs it.
-- KEYS[1] {ident}
-- KEYS[2] {ident}_ignores
-- ARGV[1] states in which that is possible, each between commas
-- ARGV[2] most, so many ignores a job may have
-- ARGV[3] settings, the job's channel for them
-- ARGV[4] changes, as JSON: `set` and `drop` fields, `add` and `remove` ignores
-- returns the new age of the settings and how many ignores were added and removed; or 0 and the state that forbids it,
-- or 0 and 'limit'

local state = state_of(KEYS[1])
if not ARGV[1]:find(',' .. state .. ',', 1, true) then
  return {0, state}
end
local changes = cjson.decode(ARGV[4])
if redis.call('SCARD', KEYS[2]) + #changes.add > tonumber(ARGV[2]) then
  return {0, 'limit'}
end
for field, value in pairs(changes.set) do
  redis.call('HSET', KEYS[1], field, value)
end
for _, field in ipairs(changes.drop) do
  redis.call('HDEL', KEYS[1], field)
end
local added, removed = 0, 0
for _, pattern in ipairs(changes.add) do
  added = added + redis.call('SADD', KEYS[2], pattern)
end
for _, pattern in ipairs(changes.remove) do
  removed = removed + redis.call('SREM', KEYS[2], pattern)
end
local age = redis.call('HINCRBY', KEYS[1], 'settings_age', 1)
redis.call('PUBLISH', ARGV[3], age)
return {age, added, removed}

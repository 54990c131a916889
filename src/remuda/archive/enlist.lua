-- The documented list of pipelines. The original's code keeps a set under this name: where there is one, it stays a set,
-- so that neither fails because of the other.
-- KEYS[1] pipelines
-- ARGV[1] pipeline
-- ARGV[2] verb, one of add, remove and show
-- returns the members for show, else nothing

local is_set = redis.call('TYPE', KEYS[1]).ok == 'set'
if ARGV[2] == 'show' then
  if is_set then return redis.call('SMEMBERS', KEYS[1]) end
  return redis.call('LRANGE', KEYS[1], 0, -1)
end
if is_set then
  redis.call(ARGV[2] == 'add' and 'SADD' or 'SREM', KEYS[1], ARGV[1])
else
  redis.call('LREM', KEYS[1], 0, ARGV[1])
  if ARGV[2] == 'add' then redis.call('RPUSH', KEYS[1], ARGV[1]) end
end
return {}

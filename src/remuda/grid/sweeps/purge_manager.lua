-- Forgets a manager, unless it beats.
-- KEYS[1] manager:{manager}
-- KEYS[2] manager:{manager}:heartbeat
-- KEYS[3] managers
-- ARGV[1] manager
-- returns 1 if it is gone, else 0

if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[3], ARGV[1])
return 1

-- Forgets where a session's artifacts are, if they are in this storage.
-- KEYS[1] session:{session}:storage
-- ARGV[1] storage
-- returns 1 if forgotten, else 0

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
